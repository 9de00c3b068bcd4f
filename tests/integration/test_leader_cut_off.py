"""A leader that alone loses the home of its lease, while it reaches everything else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.coordinators import Fleet, until
from tests.fake_api_server import FakeApiServer
from tests.tcp_proxy import TcpProxy
from tests.valkey import Valkey, running_valkey

POOLS = 6


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    with running_valkey() as server:
        yield server


def behind(config: Path, url: str, proxy: TcpProxy) -> Path:
    """The same access to the API server, by way of a proxy."""
    there = config.with_name("proxied.kubeconfig")
    there.write_text(config.read_text().replace(url, f"http://127.0.0.1:{proxy.port}"))
    assert str(proxy.port) in there.read_text()
    return there


async def test_a_leader_cut_off_from_the_api_server_alone_is_replaced_and_writes_nothing_more(
    tmp_path: Path, valkey: Valkey
) -> None:
    """It still reaches workers, store and routes: it stops before its lease has run out, nobody
    leads beside it, no group moves, and when it is back it follows (kyverno/kyverno#14984,
    kubernetes/kubernetes#23731)."""
    async with FakeApiServer.running() as api:
        port = int(api.url.rpartition(":")[2])
        direct = api.kubeconfig(tmp_path)
        async with TcpProxy.before("127.0.0.1", port) as proxy:
            fleet = Fleet(tmp_path, valkey.url, behind(direct, api.url, proxy))
            try:
                fleet.pools(*[f"pool-{n}" for n in range(POOLS)])
                for name in ("worker-0", "worker-1"):
                    await fleet.worker(name)
                first = await fleet.coordinator("coordinator-0")
                before = await fleet.settled(POOLS)
                fleet._kubeconfig = direct
                second = await fleet.coordinator("coordinator-1")
                assert first.map is not None
                version = first.map.version
                await until(lambda: second.map is not None and second.map.version == version)

                led_by_two = []

                def replaced() -> bool:
                    if first.app.leading() and second.app.leading():
                        led_by_two.append("both")
                    return second.app.leading()

                await proxy.cut()
                await until(replaced, seconds=20, what="the other one leads")
                assert not led_by_two
                assert not first.app.leading()
                await until(lambda: fleet.owned(POOLS), seconds=20, what="published")
                assert fleet.owners() == before
                epochs = {route.version.epoch for route in (await fleet.routes()).values()}
                assert epochs == {version.epoch + 1}

                await proxy.mend()
                await until(
                    lambda: (
                        first.map is not None
                        and second.map is not None
                        and first.map.version == second.map.version
                        and first.app.ready() is None
                    ),
                    seconds=20,
                    what="it follows",
                )
                assert [running.app.id for running in fleet.leaders()] == ["coordinator-1"]
                assert not [v for worker in fleet.workers.values() for v in worker.verdicts]
            finally:
                await fleet.close()

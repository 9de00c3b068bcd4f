"""Real processes under a real leader: what a stand-by knows when the owner is killed, and when the
group moves by plan."""

import asyncio
import re
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from epp_worker.handover.publisher import BATCH_SECONDS
from tests import manifest_texts
from tests.fleet_processes import Child, Fleet, running_fleet, until
from tests.worker_inprocess import Gateway

AUTHORITY = "pool-0-epp.ns1.svc:9002"
PAGE = 'vllm:num_requests_waiting{{model_name="m"}} {waiting}\nvllm:kv_cache_usage_perc 0.1\n'
HOSTS = {"127.0.0.150": 9, "127.0.0.151": 1}
"""Model servers and their queues."""


class ModelServers:
    """Metrics pages, until they hang."""

    def __init__(self) -> None:
        self.hangs = False

    async def answer(
        self, waiting: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Every request of a connection."""
        page = PAGE.format(waiting=waiting).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n"
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if self.hangs:
                    await asyncio.Event().wait()
                writer.write(head % len(page) + page)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def model_servers(port: int) -> AsyncIterator[ModelServers]:
    """Those of `HOSTS`."""
    servers, found = [], ModelServers()
    for host, waiting in HOSTS.items():

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: int = waiting
        ) -> None:
            await found.answer(waiting, reader, writer)

        servers.append(await asyncio.start_server(serve, host, port))
    try:
        yield found
    finally:
        for server in servers:
            server.close()


def write_manifests(folder: Path, port: int) -> None:
    """One pool with two pods."""
    pods = [manifest_texts.pod(f"pod-{ip}", labels={"app": "pool-0"}, ip=ip).copy() for ip in HOSTS]
    pool = manifest_texts.pool("pool-0", ports=(port,))
    (folder / "manifests" / "all.yaml").write_text(manifest_texts.text(pool, *pods))


def figure(worker: Child, name: str) -> float:
    """A value on its metrics page."""
    url = f"http://127.0.0.1:{worker.ports['http']}/metrics"
    with urllib.request.urlopen(url, timeout=5) as response:
        found = re.search(rf"^{re.escape(name)} (\S+)$", response.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


async def reached(what: str, condition: Any) -> None:
    """As `until`, beside the servers of this loop."""
    await asyncio.to_thread(until, what, condition)


async def test_a_killed_owners_stand_by_picks_by_what_it_was_told(tmp_path: Path) -> None:
    """The stand-by never scraped, and no model server answers a scrape from the moment of the kill:
    its picks go to the server with the shorter queue."""
    with running_fleet(tmp_path) as fleet:
        fleet.prepare(1)
        port = fleet.free.take()
        write_manifests(tmp_path, port)
        async with model_servers(port) as servers:
            owner, standby = await started(fleet)
            assert figure(standby, 'epp_fleet_scrapes_total{outcome="good"}') == 0
            servers.hangs = True
            owner.kill()
            gateway = Gateway(f"127.0.0.1:{standby.ports['ext-proc']}", AUTHORITY)
            picked = [await gateway.pick() for _ in range(5)]
            await gateway.close()
            assert picked == [f"127.0.0.151:{port}"] * 5
            assert figure(standby, 'epp_fleet_scrapes_total{outcome="good"}') == 0


class Settled:
    """Whether for six batches nothing was sent, and nothing received."""

    def __init__(self, owner: Child, standby: Child) -> None:
        self._workers = owner, standby
        self._bytes = (0.0, 0.0)
        self._since = 0.0

    def __call__(self) -> bool:
        owner, standby = self._workers
        now = (
            figure(owner, 'epp_fleet_state_bytes_total{direction="sent"}'),
            figure(standby, 'epp_fleet_state_bytes_total{direction="received"}'),
        )
        if now != self._bytes:
            self._bytes, self._since = now, time.monotonic()
        return time.monotonic() - self._since > 6 * BATCH_SECONDS


async def started(fleet: Fleet) -> tuple[Child, Child]:
    """The pool's owner, which has scraped, and its stand-by, which has been told."""
    coordinator = fleet.coordinator("c0")
    workers = {name: fleet.worker(name) for name in ("worker-0", "worker-1")}

    def pool() -> dict[str, Any]:
        shown = fleet.map(coordinator)
        return shown["pools"][0] if shown is not None and shown["pools"] else {}

    await reached("the pool has both", lambda: bool(pool().get("standby")))
    await reached("it is owned", lambda: pool()["phase"] == "owned")
    owner, standby = workers[pool()["owners"][0]], workers[pool()["standby"]]
    snapshots = 'epp_fleet_state_snapshots_total{outcome="applied"}'
    await reached("snapshot", lambda: figure(standby, snapshots) >= 1)
    scrapes = 'epp_fleet_scrapes_total{outcome="good"}'
    await reached("scraped", lambda: figure(owner, scrapes) >= 2)
    await reached("told", Settled(owner, standby))
    assert figure(owner, "epp_fleet_state_followers") == 1
    assert figure(standby, "epp_fleet_state_following") == 1
    return owner, standby

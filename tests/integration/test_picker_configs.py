"""A worker whose picker configurations change under its streams."""

import asyncio
from pathlib import Path

import aiohttp

from epp_worker.scheduling.pool import PoolState
from fleet.model import Hold, PoolRef
from fleet.picking.choice import PROFILE
from fleet.settings.picking import PickingSettings
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    Running,
    TestLeader,
    group_of,
    running_worker,
    until,
    write_pool,
)

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
ONE = HEAD + "plugins: [{type: header-based-testing-filter}]\n"
"""No request of this test has the header: everybody is refused."""
ALL = HEAD + "plugins: [{type: queue-scorer}]\n"


def configuration(running: Running) -> str:
    group = running.worker.holdings.get(group_of("pool-a"))
    assert group is not None
    (state,) = group.states.values()
    assert isinstance(state, PoolState)
    return "" if state.scheduler is None else " ".join(state.scheduler.config.plugins)


async def refused(gateway: Gateway) -> bool:
    """Whether a request is answered by the worker itself."""
    try:
        async with asyncio.timeout(DEADLINE):
            await gateway.pick()
    except KeyError:  # no destination in the answer
        return True
    return False


async def test_a_changed_file_counts_for_the_next_request(tmp_path: Path) -> None:
    """... without a restart; a broken one changes nothing; the pool's annotation chose it."""
    manifests, configs = tmp_path / "manifests", tmp_path / "configs"
    manifests.mkdir()
    configs.mkdir()
    write_pool(manifests, "pool-a", "10.0.0.1", annotations={PROFILE: "chat"})
    (configs / "chat.yaml").write_text(ONE)
    picking = PickingSettings(configs_folder=str(configs), poll_seconds=0.05)
    async with running_worker(manifests, picking=picking) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, pool_a=Hold.OWNER))
        gateway = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.ns1:9002")
        assert await refused(gateway)
        (configs / "chat.yaml").write_text(ALL)
        await until(lambda: configuration(running).startswith("queue-scorer"), "the new one")
        assert await gateway.pick() == "10.0.0.1:8000"
        (configs / "chat.yaml").write_text(ONE + "plugin: 1\n")
        picking_source = running.worker.holdings.schedulers
        await until(lambda: bool(picking_source.configs.problems), "the problem")
        assert await gateway.pick() == "10.0.0.1:8000"
        assert not running.fatal
        await gateway.close()
        await leader.close()


async def test_faults_of_plugins_are_on_the_metrics_page(tmp_path: Path) -> None:
    """By plugin type; a pool's other plugins are not blamed."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    async with running_worker(tmp_path) as running:
        faults = running.worker.holdings.schedulers.faults
        for _ in range(2):
            faults.raised(PoolRef("ns1", "pool-a"), "mine", "queue-scorer", ValueError("no"))
        url = f"http://{running.worker.addresses.http}/metrics"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            page = await answer.text()
    assert 'epp_fleet_plugin_faults_total{plugin="queue-scorer"} 2.0' in page

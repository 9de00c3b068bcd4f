"""Events on pools whose picker configuration is not taken."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from coordinator.events import Announcer
from fleet.picking.choice import PROFILE, ConfigProblem, Configs
from fleet.picking.config import DEFAULT
from tests.ownership_cluster import Cluster
from tests.ownership_facts import pool
from tests.unit.test_events import a_map

pytestmark = pytest.mark.looptime

ASKS = replace(pool(), annotations={PROFILE: "chat"})
BROKEN = Configs(problems=(ConfigProblem("chat", "chat.yaml", ("kind: is missing",)),))


async def test_a_configuration_that_is_not_taken_is_told_on_its_pool() -> None:
    """By pool and file; mended and broken anew, it is told anew."""
    cluster = Cluster(ASKS)
    configs = BROKEN
    announcer = Announcer(
        cluster.api,
        cluster.claims,
        leading=lambda: True,
        shard_map=lambda: a_map(0),
        reporter="coordinator-0",
        clock=cluster.clock,
        configs=lambda: configs,
    )
    running = asyncio.create_task(announcer.run())
    await asyncio.sleep(2)
    told = [each for each in cluster.events() if each["reason"] == "PickerConfigNotTaken"]
    assert [each["involvedObject"]["name"] for each in told] == [ASKS.ref.name]
    assert told[0]["type"] == "Warning"
    assert "chat.yaml: kind: is missing" in told[0]["message"]
    configs = Configs(good={"chat": DEFAULT})
    announcer.look_again()
    await asyncio.sleep(2)
    configs = Configs(folder="/configs")
    announcer.look_again()
    await asyncio.sleep(2)
    told = [each for each in cluster.events() if each["reason"] == "PickerConfigNotTaken"]
    assert len(told) == 2
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running

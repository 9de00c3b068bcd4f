"""One id, several lives: what the fleet makes of a worker that comes back, or comes twice."""

import asyncio
from pathlib import Path
from typing import Any

from fleet.settings import RedisSettings
from fleet.store.contract import Move
from fleet.store.redis import RedisStore
from tests.fleet_processes import Child, Fleet, running_fleet, until

BOTH = {"worker-0", "worker-1"}


def _workers(coordinator: Child) -> dict[str, dict[str, Any]]:
    return {worker["id"]: worker for worker in coordinator.get("/api/v1/workers")["workers"]}


async def _moves(fleet: Fleet) -> tuple[Move, ...]:
    store = RedisStore(RedisSettings(url=fleet.valkey.url), "tests")
    try:
        return await store.moves(100)
    finally:
        await store.close()


def _start(fleet: Fleet) -> tuple[Child, Child, Child]:
    fleet.prepare()
    coordinator = fleet.coordinator("coordinator-0")
    first, second = fleet.worker("worker-0"), fleet.worker("worker-1")
    until("two workers share the pools", lambda: fleet.owned(coordinator, BOTH))
    return coordinator, first, second


def test_a_worker_restarted_at_once_under_its_id_counts_as_dead_and_new(tmp_path: Path) -> None:
    """It looks alive by id and address, but it is cold: another incarnation."""
    with running_fleet(tmp_path) as fleet:
        coordinator, _, victim = _start(fleet)
        before = _workers(coordinator)["worker-1"]
        groups = {
            pool["group"]
            for pool in coordinator.get("/api/v1/map")["pools"]
            if pool["owners"] == ["worker-1"]
        }
        assert groups
        victim.kill()
        fleet.worker("worker-1", same_ports_as=victim)

        def moved_away() -> bool:
            moves = asyncio.run(_moves(fleet))
            dead = {m.group for m in moves if m.reason == "owner_dead" and m.source == "worker-1"}
            return dead >= groups

        until("its pools fail over", moved_away, 10.0)

        def back_as_new() -> bool:
            worker = _workers(coordinator)["worker-1"]
            return bool(
                worker["state"] == "alive" and worker["incarnation"] != before["incarnation"]
            )

        until("the newcomer is a member of its own", back_as_new)
        until("it is given groups again", lambda: fleet.owned(coordinator, BOTH))


def test_a_second_live_worker_under_a_taken_id_is_refused(tmp_path: Path) -> None:
    """Same id, another address, the first one alive: exit code 2, and the first keeps its pools."""
    with running_fleet(tmp_path) as fleet:
        coordinator, _, second = _start(fleet)
        before = _workers(coordinator)["worker-1"]
        twin = fleet.worker("worker-1")
        assert twin.process.wait(20) == 2
        text = twin.log.read_text()
        assert "worker-1" in text
        assert "Traceback" not in text
        assert second.process.poll() is None
        until("the first is alone again", lambda: fleet.owned(coordinator, BOTH))
        after = _workers(coordinator)["worker-1"]
        assert after["incarnation"] == before["incarnation"]
        assert after["ext_proc"] == before["ext_proc"]

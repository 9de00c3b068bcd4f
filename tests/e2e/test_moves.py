"""Planned moves between real processes, one of which stands still (SIGSTOP) in the middle."""

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path

from fleet.settings.model import RedisSettings
from fleet.store.contract import Move
from fleet.store.redis import RedisStore
from tests.fleet_processes import Child, Fleet, running_fleet, until

POOLS = 12


def history(fleet: Fleet) -> list[Move]:
    """The audit stream, oldest first."""

    async def read() -> list[Move]:
        store = RedisStore(RedisSettings(fleet.valkey.url), "tests")
        try:
            return list(reversed(await store.moves(1000)))
        finally:
            await store.close()

    return asyncio.run(read())


def owned(fleet: Fleet, coordinator: Child) -> Counter[str]:
    """How many pools each worker owns, by the map."""
    shown = fleet.map(coordinator) or {"pools": []}
    return Counter(owner for pool in shown["pools"] for owner in pool["owners"])


def routed(fleet: Fleet) -> Counter[int]:
    """How many routes name each ext_proc port."""
    return Counter(port for _, ports in fleet.routes().values() for port in ports)


def test_a_gainer_that_stands_still_holds_up_only_what_moves_to_it(tmp_path: Path) -> None:
    """One of three is stopped (SIGSTOP) and at once another one is told to leave (SIGTERM). The
    third has its part of that long before anybody is dead; no route names the stopped one for what
    it was to get; when it is dead, a TTL later, the third has everything."""
    with running_fleet(tmp_path) as fleet:
        fleet.prepare(POOLS)
        leaver, stopped, third = (fleet.worker(f"worker-{n}") for n in range(3))
        leader = fleet.coordinator("coordinator-0")
        everybody = {"worker-0", "worker-1", "worker-2"}
        until("three share the pools", lambda: fleet.owned(leader, everybody, POOLS))
        before = owned(fleet, leader)
        moved = {move.group for move in history(fleet)}
        assert len(moved) == POOLS, "a first placement is no move of anything"
        stopped.signal(signal.SIGSTOP)
        began = time.monotonic()
        leaver.signal(signal.SIGTERM)
        until(
            "the third has its part", lambda: owned(fleet, leader)["worker-2"] > before["worker-2"]
        )
        assert time.monotonic() - began < 30.0, "long before the deadline of a move"
        until(
            "all routes name the third",
            lambda: routed(fleet) == {third.ports["ext-proc"]: POOLS},
        )
        outcomes = Counter(
            (move.reason, move.source, move.target, move.outcome)
            for move in history(fleet)
            if move.source
        )
        assert outcomes["drain", "worker-0", "worker-2", "done"] == before["worker-0"]
        assert outcomes["owner_dead", "worker-1", "worker-2", "done"] == before["worker-1"]
        assert outcomes["drain", "worker-0", "worker-1", "done"] == 0
        stopped.signal(signal.SIGCONT)

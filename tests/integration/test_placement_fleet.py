"""Pins, quarantine, joins and plans in a running fleet: real coordinators, control streams and
store, workers that serve nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleet.model import GroupKey, Hold, Phase, Reason
from fleet.model.pins import PIN
from tests.coordinators import Fleet, group, manifest, running_fleet, until
from tests.valkey import Valkey, running_valkey


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    """One real store."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(server: Valkey) -> Valkey:
    """The module's server, emptied."""
    server.command("FLUSHALL")
    return server


def annotate(fleet: Fleet, name: str, pin: str | None) -> None:
    raw = json.loads(manifest(name))
    if pin is not None:
        raw["metadata"]["annotations"] = {PIN: pin}
    (fleet.manifests / f"{name}.yaml").write_text(json.dumps(raw))


async def read(fleet: Fleet, path: str) -> tuple[int, Any]:
    leader = fleet.leader.app.leader()
    assert leader is not None
    async with aiohttp.ClientSession() as http, http.get(f"http://{leader.http}{path}") as answer:
        return answer.status, await answer.json()


async def explained(fleet: Fleet, pin: object, refusals: Sequence[str] = ()) -> None:
    """Wait until `explain` of pool-0 says so."""
    async with asyncio.timeout(10):
        while True:
            _, document = await read(fleet, "/api/v1/pools/models/pool-0")
            said = [refusal["reason"] for refusal in document["refusals"]]
            if document["groups"][0]["pin"] == pin and said == list(refusals):
                return
            await asyncio.sleep(0.05)


async def test_a_pin_moves_its_pool_and_is_explained(tmp_path: Path, valkey: Valkey) -> None:
    """Make before break, with its own reason; a pin that nobody meets moves nothing and says so;
    a bad one is a refusal of its own reason, and the pool is served on."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        before = fleet.owners()["pool-0-epp"]
        target = next(name for name in sorted(fleet.workers) if (name,) != before)
        annotate(fleet, "pool-0", f"worker={target}")
        await until(lambda: fleet.owners()["pool-0-epp"] == (target,), what="moved to its pin")
        assert fleet.map is not None
        assert fleet.map.placements[group("pool-0")].reason is Reason.PINNED
        await explained(fleet, {"text": f"worker={target}", "workers": [target]})
        annotate(fleet, "pool-0", "zone=mars")
        await explained(fleet, {"text": "zone=mars", "workers": []})
        annotate(fleet, "pool-0", "region=eu")
        await explained(fleet, None, refusals=["InvalidPin"])
        annotate(fleet, "pool-0", None)
        await explained(fleet, None)
        assert fleet.owners()["pool-0-epp"] == (target,)


async def test_a_newcomer_has_its_share_within_seconds(tmp_path: Path, valkey: Valkey) -> None:
    """Six pools on three workers, and a fourth: one pool, told and acknowledged; what the plan
    said before is what happened."""
    async with running_fleet(tmp_path, valkey.url, workers=3) as fleet:
        status, plan = await read(fleet, "/api/v1/plan?workers=4")
        assert status == 200
        newcomer = await fleet.worker("worker-3")
        await until(lambda: bool(newcomer.holds(Hold.OWNER)), seconds=15, what="a share")
        await fleet.settled(6)
        owned = Counter(owners[0] for owners in fleet.owners().values())
        assert owned["worker-3"] == 1
        assert plan["moved"] == 1


class Poisoned:
    """Kills each worker that is given a pool to own, as that pool would."""

    def __init__(self, fleet: Fleet, bad: GroupKey) -> None:
        self.victims: list[str] = []
        self._fleet = fleet
        self._bad = bad
        self.on = True

    async def run(self) -> None:
        while self.on:
            for name, worker in list(self._fleet.workers.items()):
                if self._bad in worker.holds(Hold.OWNER):
                    del self._fleet.workers[name]
                    self.victims.append(name)
                    await worker.kill()
            await asyncio.sleep(0.01)


async def test_a_pool_that_kills_workers_is_stopped(tmp_path: Path, valkey: Valkey) -> None:
    """Of eight workers at most three die of it; then it is in quarantine and given to nobody, all
    other pools are owned, and once it is repaired it is served like any other."""
    fleet = Fleet(tmp_path, valkey.url)
    placement = replace(fleet.settings.placement, quarantine_window_seconds=2.0)
    fleet.settings = replace(fleet.settings, placement=placement)
    poison = Poisoned(fleet, group("bad"))
    task = asyncio.create_task(poison.run())
    try:
        names = [f"pool-{n}" for n in range(24)]
        fleet.pools(*names)
        for number in range(8):
            await fleet.worker(f"worker-{number}")
        await fleet.coordinator("coordinator-0")
        await fleet.settled(24)
        await asyncio.sleep(2.5)  # workers that have just started accuse nobody
        fleet.pools(*names, "bad")

        def confined() -> bool:
            shard_map = fleet.map
            if shard_map is None or group("bad") not in shard_map.placements:
                return False
            placed = shard_map.placements
            return (
                placed[group("bad")].phase is Phase.QUARANTINED
                and not placed[group("bad")].owners
                and all(placed[group(name)].phase is Phase.OWNED for name in names)
            )

        await until(confined, seconds=20, what="the bad pool confined, all others owned")
        assert len(poison.victims) == 3
        assert len(set(poison.victims)) == 3
        owners = {owners[0] for name, owners in fleet.owners().items() if name != "bad-epp"}
        assert owners <= set(fleet.workers)
        poison.on = False
        annotate(fleet, "bad", "worker!=worker-99")  # any change of the pool
        await fleet.settled(25)
        assert len(fleet.workers) == 5
    finally:
        poison.on = False
        await task
        await fleet.close()

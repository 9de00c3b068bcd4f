"""`epp-fleet demo`: a local fleet under steady traffic, and four events that it has to stand."""

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from fleet.clock import SystemClock
from fleet.errors import FleetError, SettingsError
from fleet.local.atomic import write_atomic
from fleet.local.command import until_ready_or_lost, what_starts
from fleet.local.demo_events import PROMISES, SLACK, Done, Event, Result, conclude
from fleet.local.demo_report import Screen
from fleet.local.faults import Refused, Unreachable
from fleet.local.model_engine import Speed
from fleet.local.options import LocalOptions
from fleet.local.plan import Plan, make_plan
from fleet.local.readiness import SERVING_PHASES
from fleet.local.running import LocalFleet, running_fleet
from fleet.local.sample import POOLS
from fleet.local.signals import until_stopped
from fleet.local.state import write_state
from fleet.local.traffic import MOST_OPEN, Target, Traffic

REQUESTS_PER_SECOND = 120.0
LEAD_SECONDS = 1.5
LOOK_SECONDS = 0.05
UNDRAIN_RATIO = 0.5
SPEED = Speed(token_seconds=0.008)
Look = Callable[[], Awaitable[bool]]


class Demo:
    """The events, done to one fleet."""

    def __init__(self, fleet: LocalFleet, screen: Screen) -> None:
        self._fleet = fleet
        self._screen = screen
        self.done: list[Done] = []

    async def epoch(self) -> int:
        """The map's epoch as any coordinator knows it."""
        return int((await self._fleet.api.shard_map())["epoch"])

    async def run(self, seconds: float) -> None:
        """All events, spread over `seconds`."""
        began = time.monotonic()
        window = (seconds - LEAD_SECONDS) / len(Event)
        steps = (self._drain, self._kill_worker, self._kill_leader, self._empty_store)
        for number, step in enumerate(steps):
            start = began + LEAD_SECONDS + number * window
            await asyncio.sleep(start - time.monotonic())
            await step(start + window)
        await asyncio.sleep(began + seconds - time.monotonic())

    async def _settle(self, event: Event, at: float, look: Look) -> float | None:
        """Seconds from `at` until `look` is content; None if it takes beyond all patience."""
        deadline = at + max(SLACK * PROMISES[event].recovery_seconds, 5.0)
        while time.monotonic() < deadline:
            try:
                if await look():
                    return time.monotonic() - at
            except (Unreachable, KeyError, TypeError):
                pass  # nobody answers, or not in full yet: that is what we wait out
            await asyncio.sleep(LOOK_SECONDS)
        return None

    def _finish(self, event: Event, at: float, settled: float | None, note: str) -> None:
        self.done.append(Done(event, at, settled, note))
        self._screen.say(f"  {note}" if settled is not None else f"  {note}: NOT in time")

    async def _busiest(self) -> str:
        owned: dict[str, int] = {}
        for pool in (await self._fleet.api.shard_map())["pools"]:
            for owner in pool["owners"]:
                owned[owner] = owned.get(owner, 0) + 1
        if not owned:
            raise FleetError("no worker owns a pool")
        return max(sorted(owned), key=lambda worker: owned[worker])

    async def _without(self, worker: str) -> bool:
        """Whether every pool has an owner, and none is `worker`."""
        pools = (await self._fleet.api.shard_map())["pools"]
        return all(
            pool["owners"] and worker not in pool["owners"] and pool["phase"] == "owned"
            for pool in pools
        )

    async def _drain(self, end: float) -> None:
        worker = await self._busiest()
        path = f"/api/v1/workers/{worker}/"
        self._screen.say(f"draining {worker}")
        at = time.monotonic()
        await self._fleet.api.command(path + "drain", self._fleet.token)
        settled = await self._settle(Event.DRAIN, at, lambda: self._without(worker))
        shown = "" if settled is None else f" in {settled:.1f} s"
        self._finish(Event.DRAIN, at, settled, f"{worker} handed all pools away{shown}")
        half = (end - time.monotonic()) * UNDRAIN_RATIO
        await asyncio.sleep(max(0.0, half))
        try:
            await self._fleet.api.command(path + "undrain", self._fleet.token)
            self._screen.say(f"  {worker} may take pools again")
        except (Refused, Unreachable) as error:
            self._screen.say(f"  {worker} could not be undrained: {error}")

    async def _kill_worker(self, end: float) -> None:
        worker = await self._busiest()
        child = self._fleet.children.get(worker)
        self._screen.say(f"kill -9 {worker}")
        child.expected = True
        at = time.monotonic()
        child.send(signal.SIGKILL)
        settled = await self._settle(Event.WORKER_KILL, at, lambda: self._without(worker))
        shown = "" if settled is None else f" in {settled:.2f} s"
        self._finish(Event.WORKER_KILL, at, settled, f"{worker} killed, pools moved{shown}")

    async def _leader(self) -> tuple[str, int]:
        shard_map = await self._fleet.api.shard_map()
        leader: Mapping[str, Any] | None = shard_map["leader"]
        return ("" if leader is None else str(leader["id"])), int(shard_map["epoch"])

    async def _kill_leader(self, end: float) -> None:
        old, epoch = await self._leader()
        if not old:
            raise FleetError("there is no leader to kill")
        child = self._fleet.children.get(old)
        self._screen.say(f"kill -9 {old}, the leader")
        child.expected = True
        at = time.monotonic()
        child.send(signal.SIGKILL)
        await child.ended.wait()

        async def led() -> bool:
            new, now = await self._leader()
            return new not in ("", old) and now > epoch

        settled = await self._settle(Event.LEADER_KILL, at, led)
        new = (await self._leader())[0] if settled is not None else "nobody"
        shown = "" if settled is None else f" after {settled:.1f} s"
        self._finish(Event.LEADER_KILL, at, settled, f"{old} killed, {new} leads{shown}")

    async def _empty_store(self, end: float) -> None:
        before = await self.epoch()
        self._screen.say("restarting the store empty")
        at = time.monotonic()
        await self._fleet.restart_store_empty()

        async def rebuilt() -> bool:
            shard_map = await self._fleet.api.shard_map()
            owned = all(p["owners"] and p["phase"] in SERVING_PHASES for p in shard_map["pools"])
            return int(shard_map["epoch"]) > before and owned

        settled = await self._settle(Event.REDIS_RESTART, at, rebuilt)
        shown = "" if settled is None else f" in {settled:.1f} s"
        self._finish(Event.REDIS_RESTART, at, settled, f"map rebuilt{shown}")


def _targets(gateway: str) -> list[Target]:
    return [
        Target(
            url=f"http://{gateway}/{pool.namespace}/{pool.name}/v1/chat/completions",
            model=pool.model,
            pods=f"{pool.namespace}/{pool.name}-",
        )
        for pool in POOLS
    ]


async def _show(screen: Screen, traffic: Traffic, seconds: float) -> None:
    began = time.monotonic()
    while True:
        screen.progress(time.monotonic() - began, seconds, traffic.counts())
        await asyncio.sleep(0.25)


async def _under_traffic(fleet: LocalFleet, screen: Screen, seconds: float) -> Result:
    if fleet.gateway is None:
        raise FleetError("the demo needs a gateway")
    demo = Demo(fleet, screen)
    before = await demo.epoch()
    began = time.monotonic()
    connector = aiohttp.TCPConnector(limit=MOST_OPEN)
    async with aiohttp.ClientSession(connector=connector) as http:
        targets = _targets(fleet.gateway)
        traffic = Traffic(http, targets, SystemClock(), random.Random(0))  # noqa: S311
        sending = asyncio.ensure_future(traffic.run(REQUESTS_PER_SECOND))
        showing = asyncio.ensure_future(_show(screen, traffic, seconds))
        try:
            await demo.run(seconds)
            traffic.stop()
            await sending
        finally:
            for task in (sending, showing):
                task.cancel()
            await asyncio.gather(sending, showing, return_exceptions=True)
    took = time.monotonic() - began
    epochs = (before, await demo.epoch())
    return conclude(demo.done, traffic.records, seconds=took, epochs=epochs)


async def _run(plan: Plan, seconds: float, environ: Mapping[str, str], screen: Screen) -> Result:
    screen.say(what_starts(plan))
    async with running_fleet(plan, environ, screen.say) as fleet:
        reason = await until_ready_or_lost(fleet)
        if reason is not None:
            raise FleetError(reason)
        state_file = fleet.folder.root / "state.json"
        write_state(state_file, fleet.state())
        screen.say(f"ready; look inside with: epp-fleet status --state-file {state_file}")
        work = asyncio.ensure_future(_under_traffic(fleet, screen, seconds))
        try:
            either: set[asyncio.Future[Any]] = {work, fleet.lost}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise FleetError(fleet.lost.result())
            result = work.result()
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            screen.close()
        screen.table(result)
        return result


def _check_writable(path: Path) -> None:
    """Better told now than after the run."""
    if not os.access(path.parent, os.W_OK | os.X_OK) or path.is_dir():
        raise SettingsError([f"--json: {path} cannot be written; give a file in a writable folder"])


def run_demo(seconds: float, json_file: Path | None, environ: Mapping[str, str]) -> int:
    """0 if every promise was kept, else 1.

    Raises:
        SettingsError: a program is missing, the environment holds bad settings, or `json_file`
            cannot be written.
        FleetError: the fleet could not be started or was lost.
    """
    screen = Screen()
    if json_file is not None:
        _check_writable(json_file)
    options = LocalOptions(state_file=Path("state.json"), speed=SPEED)
    plan = make_plan(options, environ)
    try:
        result = asyncio.run(until_stopped(_run(plan, seconds, environ, screen)))
    except OSError as error:
        raise FleetError(f"the fleet could not be run: {error}") from error
    finally:
        screen.close()
    if result is None:
        screen.say("stopped before the end: nothing is proven")
        return 1
    if json_file is not None:
        try:
            write_atomic(json_file, json.dumps(result.as_json(), indent=2) + "\n")
        except OSError as error:
            raise FleetError(f"{json_file}: {error}") from error
    return 0 if result.ok else 1

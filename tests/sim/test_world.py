"""The simulation's own parts: virtual time, pauses, deaths, streams, and how a failure shrinks."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.sim.faults import Fault, Plan, make_plan
from tests.sim.judge import Counts
from tests.sim.loop import Process, World
from tests.sim.network import End, Ended, Host, Network, Weather
from tests.sim.run import Outcome
from tests.sim.shrink import shrink
from tests.sim.tape import Violation

Work = Callable[[], Awaitable[None]]


def start(process: Process, work: Work) -> None:
    """Have a process run a coroutine."""

    async def run() -> None:
        await work()

    process.call(lambda: process.loop.create_task(run()))


def ticking(process: Process, seen: list[float]) -> None:
    """A process that notes the time every second."""

    async def tick() -> None:
        while True:
            seen.append(process.world.now)
            await asyncio.sleep(1.0)

    start(process, tick)


def test_time_passes_only_between_callbacks() -> None:
    """An hour of sleeps takes no time, and each process reads its own clock."""
    world = World()
    process = Process(world, "p", offset=500.0)
    seen: list[float] = []

    async def work() -> None:
        await asyncio.sleep(3600.0)
        seen.append(asyncio.get_running_loop().time())

    start(process, work)
    world.run(4000.0)
    assert seen == [4100.0]
    assert world.now == 4000.0


def test_a_paused_process_does_nothing_and_then_is_late() -> None:
    """Its timers fire when it goes on, in their order; its clock has gone on meanwhile."""
    world = World()
    process = Process(world, "p")
    seen: list[float] = []
    ticking(process, seen)
    world.later(2.5, process.pause)
    world.later(5.5, process.resume)
    world.run(7.0)
    assert seen == [0.0, 1.0, 2.0, 5.5, 6.5]


def test_a_killed_process_stops_where_it_is() -> None:
    """No callback of it runs any more, not even the end of a `finally`."""
    world = World()
    process = Process(world, "p")
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(10.0)
        finally:
            ended.append("said goodbye")

    start(process, work)
    world.later(5.0, process.kill)
    world.run(20.0)
    assert ended == []
    world.over = True


class Cable:
    """One stream between two processes."""

    def __init__(self) -> None:
        self.world = World()
        self.network = Network(self.world, random.Random(1), Weather(0.01, 0.0, 0.0))
        self.near, self.far = Process(self.world, "near"), Process(self.world, "far")
        self.host = Host("far", "10.0.0.1")
        self.host.process, self.host.listening = self.far, True
        self.host.serve = lambda method, metadata, end: self._read(end)
        self.network.add(self.host)
        self.end = self.network.open(self.near, "near", "10.0.0.1:1", "method")
        self.heard: list[tuple[float, object]] = []

    def _read(self, end: End) -> None:
        async def read() -> None:
            try:
                while True:
                    item = await end.get()
                    self.heard.append((round(self.world.now), item))
            except Ended as ended:
                self.heard.append((round(self.world.now), ended.code))

        start(self.far, read)


def test_a_cut_holds_back_and_keeps_order() -> None:
    """What was sent over a cut arrives when it heals, before what is sent then."""
    cable = Cable()
    for at, item in ((1.0, "a"), (3.0, "b"), (6.0, "c")):
        cable.world.later(at, cable.network.send, cable.end, item)
    cable.world.later(2.0, cable.network.cut, "near", "far")
    cable.world.later(5.0, cable.network.heal, "near", "far")
    cable.world.run(10.0)
    assert cable.heard == [(1, "a"), (5, "b"), (6, "c")]


def test_what_nobody_acknowledges_is_held_back_too() -> None:
    """A cut one way lets one report through the other way, or two; and then no cut is left."""
    cable = Cable()
    for at, item in ((1.0, "a"), (2.0, "b"), (4.0, "c")):
        cable.world.later(at, cable.network.send, cable.end, item)
    cable.world.later(0.8, cable.network.cut, "far", "near")
    cable.world.later(1.7, cable.network.cut, "near", "far")
    cable.world.later(2.5, cable.network.heal, "near", "far")
    cable.world.later(3.0, cable.network.heal, "far", "near")
    cable.world.run(6.0)
    assert cable.heard == [(1, "a"), (3, "b"), (4, "c")]
    assert not cable.network.cut_from("near")


def test_a_long_cut_and_a_death_end_a_stream() -> None:
    """Keep-alives find the one, the kernel tells of the other at once."""
    cable = Cable()
    cable.world.later(1.0, cable.network.cut, "far", "near")
    cable.world.run(20.0)
    assert cable.heard == [(13, "UNAVAILABLE")]
    cable = Cable()
    cable.world.later(1.0, cable.near.kill)
    cable.world.later(1.0, lambda: cable.network.died(cable.near, vanished=False))
    cable.world.run(20.0)
    assert cable.heard == [(1, "UNAVAILABLE")]


def test_a_failing_script_shrinks_to_what_it_needs() -> None:
    """Of many faults the one that breaks something is left, as short as it may be."""
    plan = replace(
        make_plan(1),
        workers=5,
        coordinators=3,
        groups=12,
        faults=tuple(Fault(float(n), "store down", n, 4.0) for n in range(6)),
    )

    def again(tried: Plan) -> Outcome:
        fails = any(fault.which == 4 and fault.seconds > 0.9 for fault in tried.faults)
        broken = Violation("I3", 1.0, "played") if fails else None
        return Outcome(tried, broken, "", (), 0.0, 0, 0, Counter(), Counts())

    least = shrink(again(plan), again=again).plan
    assert least.faults == (Fault(4.0, "store down", 4, 1.0),)
    assert (least.coordinators, least.workers, least.groups) == (2, 3, 3)

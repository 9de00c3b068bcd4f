"""One run of one plan, from its first second to the end that must be good."""

import gc
import logging
import secrets
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest import mock

from coordinator.knowledge import Knowledge
from coordinator.leader.linkset import Links
from epp_worker.holdings import Holdings
from epp_worker.holds import Ruling
from epp_worker.loopwatch import LoopWatch
from epp_worker.worker import Worker
from fleet.model import Hold, Phase, ShardMap, Share
from tests.sim.faults import Plan
from tests.sim.fleet import Fleet
from tests.sim.judge import Counts, Judge
from tests.sim.script import Script
from tests.sim.tape import Tape, Violation

CONVERGE_SECONDS = 14.0
"""After the last fault is over everything is as it should be within this."""

CALM_SECONDS = 1.0
"""... and stays so."""

TOLD_SECONDS = 1.0
"""A worker learns within this of what was just decided."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run went."""

    plan: Plan
    violation: Violation | None
    hash: str
    tail: tuple[str, ...]
    seconds: float
    steps: int
    sent: int
    faults: Counter[str]
    counts: Counts


def not_converged(fleet: Fleet, *, moving: bool = False) -> str | None:
    """What is not as it should be in a fleet without faults; None if all is well.

    Args:
        moving: groups may be moved for balance, as they always may.
    """
    leaders = fleet.leaders()
    if len(leaders) != 1:
        return f"{len(leaders)} leaders"
    app = leaders[0].app
    shard_map = None if app is None else app.shard_map()
    if shard_map is None or shard_map.leader.id != leaders[0].host.name:
        return "the leader has published no map"
    if shard_map.placements.keys() != fleet.pools.keys():
        return "the map has other groups than there are"
    for group, placement in shard_map.placements.items():
        confined = placement.phase is Phase.QUARANTINED
        if confined and not placement.owners:
            continue  # it rests: it is kept from everybody for longer than a run lasts
        unfinished = not (placement.phase is Phase.OWNED or confined) or placement.draining
        alone = not placement.standby and not confined
        if (unfinished and not moving) or not placement.owners or alone:
            return f"{group} is {placement.phase.value}, draining {placement.draining}"
        life = fleet.workers.get(placement.owners[0])
        if life is None or not life.up or not life.process.alive or life.host.name in fleet.left:
            return f"{group} is owned by {placement.owners[0]}, which is no more"
        held = life.worker.holdings.get(group)
        if held is None or held.hold is not Hold.OWNER or not held.serving:
            return f"{life.host.name} does not know that it owns {group}"
        standing = fleet.routes.standing.get(group)
        address = life.worker.addresses.ext_proc
        if standing is None or (standing.route.addresses != (address,) and not moving):
            return f"the route of {group} leads elsewhere"
    for life in fleet.living_workers():
        incarnation = shard_map.incarnations.get(life.host.name)
        if life.host.name not in fleet.left and life.worker.holdings.incarnation != incarnation:
            return f"{life.host.name} is not in the map as what it is"
    if fleet.routes.standing.keys() != fleet.pools.keys():
        return "there are routes of groups that are no more"
    return None


@contextmanager
def _alone(*, collect: bool) -> Iterator[None]:
    """Nothing from outside, nothing to the outside, not even from the garbage collector."""
    logging.disable(logging.CRITICAL)
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collect:
            with warnings.catch_warnings(action="ignore"):
                gc.collect()  # calls that came in a process' last moment were never begun
            sys.unraisablehook = hook
            if collecting:
                gc.enable()
        logging.disable(logging.NOTSET)


def _no_work() -> float:
    """A callback takes no time: this thread's would differ from run to run."""
    return 0.0


def run(plan: Plan, *, keep: int = 60, collect: bool = True) -> Outcome:
    """Run a plan; the same one always goes the same way.

    Args:
        collect: False leaves the run's garbage to the end of the process, which must come soon and
            without a farewell: a third of a run's time is spent on it else.
    """
    with _alone(collect=collect):
        return _run(plan, keep)


def _run(plan: Plan, keep: int) -> Outcome:
    tape = Tape(keep=keep)
    judge = Judge(tape)
    tokens = Random(f"tokens {plan.seed}")
    learn, assign, apply = Knowledge.learn_map, Links.assign, Holdings.apply
    set_drain = Worker.set_drain

    def learn_map(knowledge: Knowledge, shard_map: ShardMap) -> bool:
        judge.maps.learned(shard_map)
        return learn(knowledge, shard_map)

    def assigned(links: Links, shares: Mapping[str, Share], changed: Iterable[str]) -> None:
        judge.shares.assigned(shares)
        assign(links, shares, changed)

    def applied(holdings: Holdings, share: Share, *, hearsay: bool = False) -> Ruling:
        ruling = apply(holdings, share, hearsay=hearsay)
        if ruling is Ruling.APPLY and not hearsay:
            judge.shares.applied(share)
        return ruling

    def drains(worker: Worker, on: bool) -> None:
        judge.maps.drains(worker.id)
        set_drain(worker, on)

    with (
        mock.patch.object(secrets, "token_hex", lambda n=8: f"{tokens.getrandbits(8 * n):x}"),
        mock.patch.object(Knowledge, "learn_map", learn_map),
        mock.patch.object(Links, "assign", assigned),
        mock.patch.object(Holdings, "apply", applied),
        mock.patch.object(Worker, "set_drain", drains),
        mock.patch.object(LoopWatch.__init__, "__defaults__", (_no_work,)),
    ):
        fleet = Fleet(plan, judge)
        judge.watch(fleet)
        script = Script(fleet, tape.fault)
        world = fleet.world

        def broken() -> bool:
            return tape.violation is not None

        world.run(plan.horizon, broken)
        until = plan.horizon + CONVERGE_SECONDS
        while not broken() and not_converged(fleet) is not None and world.now < until:
            world.run(world.now + 0.25, broken)
        if not broken() and (why := not_converged(fleet)) is not None:
            tape.break_("END", why)
        world.run(world.now + CALM_SECONDS, broken)
        until = world.now + TOLD_SECONDS
        while not broken() and not_converged(fleet, moving=True) and world.now < until:
            world.run(world.now + 0.05, broken)  # a move for balance may have been decided just now
        if not broken() and (why := not_converged(fleet, moving=True)) is not None:
            tape.break_("END", f"not for long: {why}")
        world.over = True
    return Outcome(
        plan,
        tape.violation,
        tape.hash(),
        tuple(tape.tail),
        world.now,
        world.steps,
        sum(gateway.sent for gateway in fleet.gateways),
        Counter(script.done),
        judge.counts,
    )

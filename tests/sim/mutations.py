"""Faults put into the code on purpose: the simulation is worth something if it finds them.

Each replaces one small piece of the real code while a run lasts, and says which invariants may be
the first to break. `tests.sim.scripts` has the faults that show each.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import msgspec

import coordinator.election.candidate as candidate_module
import coordinator.leader.targets as targets
import coordinator.leader.term as term_module
import coordinator.planning.transitions as transitions
import epp_worker.control.server as control_server
import epp_worker.holdings as holdings_module
import epp_worker.stopping as stopping
from coordinator.election.candidate import Candidate
from coordinator.election.contract import Standing, Term
from coordinator.election.kube_lease import KubeLeaseElection
from coordinator.election.leadership import Leadership
from coordinator.election.redis import StoreElection
from coordinator.leader import recall
from coordinator.leader.doubt import LeaseInDoubt
from coordinator.leader.routekeeping import RouteKeeper
from coordinator.life import Life
from coordinator.membership import Membership
from coordinator.planning.transitions import _Step
from coordinator.verdicts import Answer
from epp_worker.catalogue import Catalogue
from epp_worker.control.rules import Admission
from epp_worker.draining import Farewells, Next
from epp_worker.holdings import Holdings
from epp_worker.holds import Ruling
from epp_worker.holds import judge as _judge
from epp_worker.process import ExtProc
from epp_worker.worker import Worker
from fleet.control.messages import AssignPart
from fleet.control.sharing import ShareMerging, ShareShortening
from fleet.model import Endpoint, Member, Pool, Share, Signal
from fleet.store.contract import Guard, Lease
from tests.sim.routes import SimRoutes
from tests.sim.store import SimStore

Patch = Callable[[ExitStack], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    Attributes:
        breaks: invariants of which one must be the first to break.
        apply: puts it in; the stack takes it out.
    """

    breaks: tuple[str, ...]
    apply: Patch


def _put(*places: tuple[Any, str, Any]) -> Patch:
    def apply(stack: ExitStack) -> None:
        for target, name, new in places:
            stack.enter_context(mock.patch.object(target, name, new))

    return apply


def _no_floor(kind: Any) -> Any:
    """An election that asks nobody but its home for the last epoch."""
    real = kind.acquire

    async def acquire(self: Any, *, floor: int) -> Term | None:
        found: Term | None = await real(self, floor=0)
        return found

    return acquire


async def _unconfirmed(self: Any, guard: Guard, *, ttl_seconds: float) -> Lease:
    """The primary alone has it."""
    found: Lease = await self._call(lambda store: store.renew(guard, ttl_seconds=ttl_seconds))
    return found


async def _release_first(self: Any, term: Term) -> bool:
    """The lease is given up a moment before the work is stopped."""
    leadership = Leadership(self._clock, term)
    work = asyncio.create_task(self._work(leadership))
    self._leadership = leadership
    try:
        await self._keep(leadership, work)
        return True
    finally:
        await self._release(leadership.term)
        await self._clock.sleep(1.0)
        leadership.end()
        self._leadership = None
        work.cancel()
        await asyncio.wait({work})


async def _not_stopped(work: Any) -> None:
    """What a leader had begun goes on after its term."""


def _free_at_once(self: Any, standing: Standing) -> bool:
    return standing.leader is None or standing.leader.id == self._me


_store_seen = Membership.store_seen


def _absent_is_dead(self: Any, beats: Iterable[tuple[Member, float]], now: float) -> None:
    """Whoever the store does not name has died."""
    beats = list(beats)
    _store_seen(self, beats, now)
    present = {member.id for member, _ in beats}
    for worker, life in list(self._lives.items()):
        if worker not in present:
            self._bury(life, Signal.SILENT, now)


def _any_epoch(standing: Any, share: Any) -> Ruling:
    ruling = _judge(standing, share)
    return Ruling.APPLY if ruling in (Ruling.LOWER_EPOCH, Ruling.NOT_NEWER) else ruling


def _any_version(standing: Any, share: Any) -> Ruling:
    ruling = _judge(standing, share)
    other = share.version != standing.applied
    return Ruling.APPLY if ruling is Ruling.NOT_NEWER and other else ruling


_hello = Membership.hello


_completed = recall.completed


def _heirs_by_name(previous: Any, *, members: Any, **others: Any) -> Any:
    """Who came back has what was given to who it was."""
    members = list(members)
    found = _completed(previous, members=members, **others)
    if found is None or previous is None:
        return found
    lives = {member.id: member.incarnation for member in members}
    return replace(found, incarnations={**found.incarnations, **lives})


def _newer_by_hello(previous: Any, *, members: Any, **others: Any) -> Any:
    """Whoever has heard of this leader is newer than the map."""
    heard = [replace(member, applied=member.seen) for member in members]
    return _completed(previous, members=heard, **others)


def _same_by_name(self: Any, member: Member, now: float) -> Answer:
    """A worker is who its name says, whatever its incarnation."""
    life = self._lives.get(member.id)
    if life is not None and not life.control_up:
        life.member, life.heard, life.reached, life.control_up = member, now, True, True
        return Answer.JOINED
    return _hello(self, member, now)


def _alive_by_name(previous: Any, peers: Any) -> frozenset[str]:
    return frozenset(() if previous is None else (w for w in previous.incarnations if w in peers))


def _any_endpoint(self: Any, pool: Pool) -> tuple[Endpoint, ...]:
    """Every pod that is known, whosesoever."""
    index = self._namespaces[pool.ref.namespace].index
    pools = sorted(self._pools.values(), key=lambda each: each.ref)
    return tuple(endpoint for each in pools for endpoint in index.endpoints(each))


async def _no_repair(self: Any) -> float:
    raise LeaseInDoubt("not looked")


def _never(*args: Any, **kwargs: Any) -> bool:
    return False


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


def _nobody(*args: Any, **kwargs: Any) -> None:
    return None


def _by_control_alone(self: Any, now: float, known_since: float | None, seconds: float) -> bool:
    return bool(now - self.heard >= seconds)


def _unknown_is_silent(self: Any, now: float, known_since: float | None, seconds: float) -> bool:
    """What the store does not tell has not been."""
    beat = self.beat_age(now, known_since)
    return bool((beat is None or beat >= seconds) and now - self.heard >= seconds / 4)


def _old_incarnation(self: Any, reason: str) -> None:
    """A worker that was declared dead goes on as who it was."""


def _any_part(self: Any, part: AssignPart) -> Share | None:
    """Whatever comes is a part of what is here."""
    share = self._share
    if share is None:
        return None
    known = {entry.group: entry for entry in share.entries}
    for group in part.gone:
        known.pop(group, None)
    known |= {entry.group: entry for entry in part.changed}
    self._share = replace(share, version=part.version, entries=tuple(known.values()))
    whole: Share = self._share
    return whole


_next_part = ShareShortening.next


def half_told(self: Any, share: Share) -> AssignPart | None:
    """Every other part is lost on its way, so that the next one builds on what never came."""
    part = _next_part(self, share)
    self._parts = getattr(self, "_parts", 0) + (part is not None)
    if part is None or self._parts % 2:
        return part
    empty = {"version": part.base, "changed": (), "gone": ()}
    return msgspec.structs.replace(part, **empty)


def forgets_to_end(self: Any, share: Share) -> AssignPart | None:
    """What a worker loses is not said."""
    part = _next_part(self, share)
    return None if part is None else msgspec.structs.replace(part, gone=())


def forgets_to_say(self: Any, share: Share) -> AssignPart | None:
    """Of what changed the first is left out."""
    part = _next_part(self, share)
    return None if part is None else msgspec.structs.replace(part, changed=part.changed[1:])


def _drop_at_once(self: Any, group: Any, now: float) -> bool:
    return True


MUTATIONS: dict[str, Mutation] = {
    "epoch from its home alone": Mutation(
        ("I2", "END", "I3"),
        _put(
            (StoreElection, "acquire", _no_floor(StoreElection)),
            (KubeLeaseElection, "acquire", _no_floor(KubeLeaseElection)),
        ),
    ),
    "lease released before the work stops": Mutation(
        ("I2",), _put((Candidate, "_reign", _release_first))
    ),
    "deadline of the lease not looked at": Mutation(
        ("I2",),
        _put((Leadership, "valid", lambda self: not self._ended)),
    ),
    "renewals that no replica has": Mutation(("I2",), _put((SimStore, "renew", _unconfirmed))),
    "an emptied home is free": Mutation(("I2",), _put((Candidate, "_free", _free_at_once))),
    "absent from the store is dead": Mutation(
        ("I6",),
        _put((Membership, "store_seen", _absent_is_dead)),
    ),
    "first map without settling": Mutation(("I3", "I8"), _put((term_module, "settled", _always))),
    "break before make": Mutation(("I4", "I8"), _put((_Step, "_holds", _always))),
    "one silent channel kills": Mutation(
        ("I6", "I4", "I8"), _put((Life, "silent", _by_control_alone))
    ),
    "unknown beats are silence": Mutation(("I6",), _put((Life, "silent", _unknown_is_silent))),
    "a worker is its name": Mutation(
        ("I3", "I7"),
        _put(
            (Membership, "hello", _same_by_name),
            (transitions, "survivors", _alive_by_name),
            (targets, "survivors", _alive_by_name),
        ),
    ),
    "who came back inherits by name": Mutation(
        ("I7",), _put((recall, "completed", _heirs_by_name))
    ),
    "who heard the leader is newer than the map": Mutation(
        ("I6",), _put((recall, "completed", _newer_by_hello))
    ),
    "worker takes a lower epoch": Mutation(
        ("I1", "I2"),
        _put(
            (holdings_module, "judge", _any_epoch),
            (control_server, "admit", lambda *_: Admission.ADMIT),
        ),
    ),
    "worker takes an older share": Mutation(
        ("I2",),
        _put((holdings_module, "judge", _any_version)),
    ),
    "routes never looked at again": Mutation(
        ("I1", "I3", "END"),
        _put((RouteKeeper, "repair", _no_repair)),
    ),
    "routes written without a fence": Mutation(
        ("I1",),
        _put((SimRoutes, "_judge", _nobody), (candidate_module, "_stop", _not_stopped)),
    ),
    "warm stand-by passed over": Mutation(("I3",), _put((transitions, "heir", _nobody))),
    "drain ends before the hand-over": Mutation(
        ("I4", "I8"),
        _put((stopping, "next_step", lambda *_: Next.LEAVE)),
    ),
    "nobody is sent away": Mutation(("END",), _put((Farewells, "stray", _never))),
    "the dead go on as who they were": Mutation(
        ("END", "I3", "I7"),
        _put((Worker, "rejoin", _old_incarnation)),
    ),
    "picks among all pods": Mutation(("I5",), _put((Catalogue, "endpoints", _any_endpoint))),
    "part taken on a wrong base": Mutation(
        ("I2",),
        _put((ShareShortening, "next", half_told), (ShareMerging, "merged", _any_part)),
    ),
    "part that forgets what is gone": Mutation(
        ("I2",),
        _put((ShareShortening, "next", forgets_to_end), (ShareMerging, "merged", _any_part)),
    ),
    "part that forgets what changed": Mutation(
        ("I2",),
        _put((ShareShortening, "next", forgets_to_say), (ShareMerging, "merged", _any_part)),
    ),
    "lost groups dropped at once": Mutation(
        ("I4", "I8"),
        _put(
            (Holdings, "_droppable", _drop_at_once),
            (_Step, "_drained", _always),
            (ExtProc, "forward_by", _nobody),
        ),
    ),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """With this fault in the code."""
    with ExitStack() as stack:
        MUTATIONS[name].apply(stack)
        yield

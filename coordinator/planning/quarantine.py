"""Groups that kill workers: which deaths count against which groups, and what follows. Pure.

The rule, in the order in which it is applied:

1. A death counts against the groups that the worker was given at most
   `placement.quarantine_window_seconds` before it was found dead, to own or to open. Not if the
   worker's control stream was down when it was given them (it was dying already), nor if the worker
   itself was no older than that (then everything it has is new and says nothing), nor if its pod
   was taken away (somebody did that).
2. A group that outlives the window at a worker is cleared of what counted against it.
3. A group against which the deaths of two workers count, one after the other, is quarantined: two
   ids, since one broken worker kills whatever comes to it; and two nodes where both are known,
   since a node takes its workers with it. But only if at most `MOST` groups are in that position
   at one death: when many are, the cause is a release or a node. The next death narrows it: what a
   dead worker had is spread over all others, so fewer go the same way each time.
4. A quarantined group stays with one worker, without a stand-by, and that worker is given nothing
   new as long as there are others. If that worker dies within the window too, the group rests: for
   `REST_SECONDS` nobody is given it. It has no owner then, so that the others live.
5. It is released after `placement.quarantine_seconds` without such a death, or when one of its
   pools changes: whoever repairs a pool need not wait.

A pool that kills every worker the moment it is opened is quarantined at the second death, since
hardly anything else is new at the first. One that begins to kill after hours of service takes one
or two more: only the groups that moved from one dead worker to the next are suspects. A wrong
verdict costs a warm stand-by for some minutes.

A new leader knows of quarantined groups by their phase, and of nothing that counted before.
"""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from coordinator.planning.differences import differing
from fleet.model import GroupKey, Phase, Placement, ShardMap
from fleet.settings.model import PlacementSettings

log = logging.getLogger(__name__)

MOST = 3
"""Groups that one death may put into quarantine: a pool, or the few that were made with it."""

REST_SECONDS = 30.0
"""How long nobody is given a group that took a worker with it although it was in quarantine."""

Objects = Callable[[GroupKey], object]
"""What a group is made of: compares unequal once one of its pools has changed."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that was found dead of itself."""

    worker: str
    node: str


@dataclass(frozen=True, slots=True)
class _Arrival:
    at: float
    alive: bool


@dataclass(frozen=True, slots=True)
class _Ward:
    """A quarantined group; `last` is the last death that counted, `rests` until when it rests."""

    last: float
    objects: object
    rests: float = 0.0


class Quarantine:
    """What one term of leadership holds against groups. Times are monotonic seconds."""

    def __init__(self, settings: PlacementSettings) -> None:
        self._window = settings.quarantine_window_seconds
        self._seconds = settings.quarantine_seconds
        self._map: ShardMap | None = None
        self._born: dict[str, tuple[str, float]] = {}
        self._arrivals: dict[str, dict[GroupKey, _Arrival]] = {}
        self._against: dict[GroupKey, list[Loss]] = {}
        self._wards: dict[GroupKey, _Ward] = {}

    @property
    def groups(self) -> frozenset[GroupKey]:
        """Those in quarantine."""
        return frozenset(self._wards)

    def resting(self, now: float) -> frozenset[GroupKey]:
        """Those that nobody may be given at this moment."""
        return frozenset(group for group, ward in self._wards.items() if now < ward.rests)

    def look(
        self,
        shard_map: ShardMap | None,
        losses: Iterable[Loss],
        *,
        objects: Objects,
        up: Callable[[str], bool],
        now: float,
    ) -> None:
        """Take in the last published map and who died since the last look.

        Args:
            up: whether the control stream of a worker is up.
        """
        if shard_map is not None and shard_map is not self._map:
            self._follow(self._map, shard_map, objects, up, now)
            self._map = shard_map
        for loss in losses:
            self._lost(loss, objects, now)
        self._clear(now)
        self._release(shard_map, objects, now)

    # -- arrivals -------------------------------------------------------------------------------

    def _follow(
        self,
        before: ShardMap | None,
        after: ShardMap,
        objects: Objects,
        up: Callable[[str], bool],
        now: float,
    ) -> None:
        lives = self._born
        self._born = {
            worker: lives[worker]
            if worker in lives and lives[worker][0] == incarnation
            else (incarnation, now)
            for worker, incarnation in after.incarnations.items()
        }
        if before is None:
            # Who was given what before this term is not known; quarantine is written in the map.
            for group, placement in after.placements.items():
                if placement.phase is Phase.QUARANTINED:
                    rests = 0.0 if placement.owners else now + REST_SECONDS
                    self._wards[group] = _Ward(now, objects(group), rests)
            return
        for group in differing(before.placements, after.placements).changed:
            placement, previous = after.placements[group], before.placements.get(group)
            for worker in _holders(placement) - _holders(previous):
                self._arrivals.setdefault(worker, {})[group] = _Arrival(now, up(worker))

    def _clear(self, now: float) -> None:
        """Whatever has outlived the window is beyond suspicion."""
        for worker, arrivals in list(self._arrivals.items()):
            old = [group for group, each in arrivals.items() if now - each.at > self._window]
            for group in old:
                del arrivals[group]
                self._against.pop(group, None)
            if not arrivals:
                del self._arrivals[worker]

    # -- deaths ---------------------------------------------------------------------------------

    def _lost(self, loss: Loss, objects: Objects, now: float) -> None:
        arrivals = self._arrivals.pop(loss.worker, {})
        _, born = self._born.get(loss.worker, ("", now))
        suspects = [
            group
            for group, each in arrivals.items()
            if each.alive and now - each.at <= self._window and self._window > 0
        ]
        for group in suspects:
            ward = self._wards.get(group)
            if ward is not None:
                self._wards[group] = replace(ward, last=now, rests=now + REST_SECONDS)
                log.warning(
                    "quarantined group lost its worker",
                    extra={"group": str(group), "worker": loss.worker},
                )
        if now - born <= self._window:
            return
        guilty = []
        for group in suspects:
            against = self._against.setdefault(group, [])
            if any(_apart(loss, earlier) for earlier in against):
                guilty.append(group)
            against.append(loss)
        fresh = [group for group in guilty if group not in self._wards]
        if 0 < len(fresh) <= MOST:
            for group in fresh:
                self._wards[group] = _Ward(now, objects(group))
                log.warning(
                    "group quarantined",
                    extra={
                        "group": str(group),
                        "workers": ", ".join(each.worker for each in self._against[group]),
                    },
                )

    # -- release --------------------------------------------------------------------------------

    def _release(self, shard_map: ShardMap | None, objects: Objects, now: float) -> None:
        for group, ward in list(self._wards.items()):
            known: Collection[GroupKey] = () if shard_map is None else shard_map.placements
            changed = objects(group) != ward.objects
            if group in known and not changed and now - ward.last < self._seconds:
                continue
            del self._wards[group]
            self._against.pop(group, None)
            why = "changed" if changed else "quiet"
            log.info("group released from quarantine", extra={"group": str(group), "why": why})


def _holders(placement: Placement | None) -> frozenset[str]:
    """Who serves the group or opens it to serve it."""
    if placement is None:
        return frozenset()
    moving = () if placement.moving_to is None else (placement.moving_to,)
    return frozenset((*placement.owners, *moving))


def _apart(one: Loss, two: Loss) -> bool:
    """Whether two deaths are evidence of each other's cause."""
    return one.worker != two.worker and (not one.node or one.node != two.node)

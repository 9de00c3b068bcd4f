"""When a term knows enough to make its first map, and when workers enough are there for it.

Nothing is published out of knowing nothing, or from half a look. A term has settled when every
worker that is known was reached or is dead, and else after one member TTL: who did not answer by
then counts as silent like anybody else.

Groups that nobody ever owned wait a moment longer: workers that start together do not come in the
same instant, and whoever came first would get all groups, most of which would move again. Groups
that have lost their owner never wait for that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.verdicts import Judged
from coordinator.worker_pods import WorkerPod
from fleet.model import Phase, Reason, ShardMap
from fleet.settings.model import MembershipSettings

FIRST_BEATS = 1.2
"""A fleet without a past settles for at least this many heartbeats, so that all have beaten."""


QUIET_BEATS = 1.5
"""Where workers are no pods, all have come if nobody came for this many heartbeats: three times the
0.25 s that lay between three processes started at once on two cores."""


@dataclass(frozen=True, slots=True)
class Informed:
    """What the term knows.

    Attributes:
        store_reads: how often the store told the workers' beats.
        told_for: seconds since it first did; without meaning before.
        past: whether a map is known that names workers.
        reached: whether any worker has said hello.
        all_reached: whether every known worker has, and there are some.
        pods_reached: whether every worker that is known by its pod alone has, too.
    """

    store_reads: int
    past: bool
    reached: bool
    all_reached: bool
    pods_reached: bool
    told_for: float = float("inf")


def settled(
    known: Informed, *, elapsed: float, in_store: bool, settings: MembershipSettings
) -> bool:
    """Whether the first map may be made `elapsed` seconds after the term began.

    Args:
        in_store: whether the lease is in the store. If so, the store's word is waited for; if not,
            it counts like a map of old or a worker's own word.

    A term without a map of old waits from the store's first word on: one that was away may come
    back empty, and then nobody has beaten yet.
    """
    told = known.store_reads > 0
    if not told and (in_store or not (known.past or known.reached)):
        return False
    least = 0.0 if known.past else FIRST_BEATS * settings.heartbeat_seconds
    complete = (told or known.past) and known.all_reached and (told or known.pods_reached)
    waited = min(elapsed, known.told_for) if told and not known.past else elapsed
    return (complete and waited >= least) or waited >= settings.ttl_seconds


class Pods(Protocol):
    """The workers' pods; see `coordinator.worker_pods.WorkerPods`."""

    def living(self) -> Sequence[WorkerPod]:
        """Pods that may run a worker."""
        ...


class Muster:
    """Whether all workers that start together are here. Once they are, that is over for the term.

    Never longer than one TTL from the first worker on. Where workers are pods, those that run or
    are about to are waited for; a single one, at the latest when it says hello, for nobody.
    """

    def __init__(self, settings: MembershipSettings) -> None:
        self._ttl = settings.ttl_seconds
        self._quiet = QUIET_BEATS * settings.heartbeat_seconds
        self._reached: frozenset[tuple[str, str]] = frozenset()
        self._first: float | None = None
        self._latest = 0.0
        self._over = False

    def complete(
        self,
        living: Sequence[Judged],
        pods: Pods | None,
        previous: ShardMap | None,
        now: float,
    ) -> bool:
        """Whether a first placement may be made at monotonic `now`; to be asked at each look.

        Args:
            pods: of the workers, where they are pods.
            previous: the last map; if anybody has ever owned a group of it, nothing is waited for.
        """
        if self._over:
            return True
        reached = frozenset((j.member.id, j.member.incarnation) for j in living if j.reached)
        if not reached:
            self._reached, self._first = reached, None
            return True  # that nobody owns anything is shown
        if self._first is None:
            self._first = now
        if reached - self._reached:
            self._latest = now
        self._reached = reached
        self._over = (
            _ever_owned(previous)
            or now - self._first >= self._ttl
            or self._all_here({worker for worker, _ in reached}, pods, now)
        )
        return self._over

    def _all_here(self, reached: set[str], pods: Pods | None, now: float) -> bool:
        wanted = set() if pods is None else {p.name for p in pods.living() if not p.ending}
        if wanted and reached <= wanted:
            return wanted <= reached
        return now - self._latest >= self._quiet


def _ever_owned(shard_map: ShardMap | None) -> bool:
    placements = () if shard_map is None else shard_map.placements.values()
    return any(p.phase is not Phase.UNOWNED or p.reason is not Reason.INITIAL for p in placements)

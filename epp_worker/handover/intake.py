"""What other workers tell: taken over into the pools that are held here.

Which word counts: an origin's counts are those that were told last, metrics those that are newest,
slots merge by their own rule. Rows of a group that is no longer followed from that worker are
passed over, so that late news of a former owner changes nothing. A worker that falls silent keeps
its word for a while (a broken stream is soon dialled again); one that is dead loses it at once.
"""

from collections.abc import Callable, Collection, Iterable

from epp_worker.group import Group
from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.rows import take_over
from epp_worker.holds import SCRAPING
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_merge import begin_anew, forget_speaker, keep_living
from epp_worker.wheel import Lane
from fleet.control.state_messages import MAX_GROUPS, Feed, GroupStart, PoolRows, decode_rows
from fleet.errors import FormatError
from fleet.model import GroupKey, PoolId

SILENCE_SECONDS = 10.0
"""How long the requests in flight of a worker that lives are believed after its stream broke."""
MAX_FEED_BYTES = 2 * 1024 * 1024
"""Of one message, which is taken over in one turn of the loop: three times the longest that a
worker sends, that with the longest chain of a prefix index."""


class Hearing:
    """All that is told to this worker.

    Args:
        lane: its entries wait `SILENCE_SECONDS`.
        now: monotonic seconds.
    """

    def __init__(
        self,
        get: Callable[[GroupKey], Group | None],
        *,
        lane: Lane,
        now: Callable[[], float],
        counts: StreamCounts,
    ) -> None:
        self._get = get
        self._lane = lane
        self._now = now
        self._counts = counts
        self._speaking: dict[tuple[str, GroupKey], Intake] = {}
        self._living: frozenset[str] = frozenset()

    def open(
        self, speaker: str, incarnation: str, wanted: Callable[[GroupKey], bool], *, relay: bool
    ) -> "Intake":
        """A stream of `speaker` begins; only groups that are wanted are taken from it.

        Args:
            relay: what it says is to be told on: it is a follower, not an owner.
        """
        return Intake(self, speaker, incarnation, wanted, relay=relay)

    def survivors(self, living: Collection[str], groups: Iterable[Group]) -> None:
        """These incarnations of other workers live; what others counted is dropped."""
        known = frozenset(living)
        if known == self._living:
            return
        self._living, dead = known, self._living - known
        for group in groups:
            for pool in group.states.values():
                keep_living(pool, known, dead)

    def begin(self, intake: "Intake", start: GroupStart) -> None:
        """A snapshot begins."""
        self._speaking[intake.speaker, start.group] = intake
        for _, pool_id in start.pools:
            pool = self._pool(start.group, pool_id)
            if pool is not None:
                begin_anew(pool, intake.speaker)

    def rows(self, intake: "Intake", group: GroupKey, pool_id: PoolId, rows: PoolRows) -> None:
        """Present values of a pool."""
        pool = self._pool(group, pool_id)
        held = self._get(group)
        if pool is None or held is None:
            return
        try:
            take_over(
                pool,
                rows,
                speaker=intake.speaker,
                incarnation=intake.incarnation,
                accepts=lambda origin: origin == intake.incarnation or origin in self._living,
                now=self._now(),
                scrapes=held.hold in SCRAPING,
                relay=intake.relay,
            )
        except ValueError:
            self._counts.unreadable += 1

    def _pool(self, key: GroupKey, pool_id: PoolId) -> PoolState | None:
        group = self._get(key)
        pool = None if group is None else group.states.get(pool_id.ref)
        return pool if pool is not None and pool.pool.uid == pool_id.uid else None

    def received(self, size: int, complete: int) -> None:
        """For the metrics."""
        self._counts.received_bytes += size
        self._counts.snapshots_applied += complete

    def silent(self, intake: "Intake", groups: Collection[GroupKey]) -> None:
        """The stream tells of these groups no more; what it said is void after a while, unless
        another stream of that worker speaks for them by then."""
        if groups:
            self._lane.add(lambda: self.void(intake, groups))

    def void(self, intake: "Intake", groups: Collection[GroupKey]) -> None:
        """What this stream said of the groups is void now."""
        for key in groups:
            if self._speaking.get((intake.speaker, key)) is not intake:
                continue
            del self._speaking[intake.speaker, key]
            group = self._get(key)
            for pool in () if group is None else group.states.values():
                forget_speaker(pool, intake.speaker)


class Intake:
    """One stream, from the side that is told."""

    def __init__(
        self,
        hearing: Hearing,
        speaker: str,
        incarnation: str,
        wanted: Callable[[GroupKey], bool],
        *,
        relay: bool,
    ) -> None:
        self.relay = relay
        self.speaker = speaker
        self.incarnation = incarnation
        self._hearing = hearing
        self._wanted = wanted
        self._numbers: dict[int, tuple[GroupKey, PoolId]] = {}
        self._groups: dict[GroupKey, tuple[int, ...]] = {}

    def accept(self, feed: Feed, size: int) -> None:
        """Take over a message of `size` bytes. Raises FormatError."""
        if size > MAX_FEED_BYTES:
            raise FormatError(f"more than {MAX_FEED_BYTES} bytes of state in one message")
        for start in feed.starts:
            self._start(start)
        for raw in feed.rows:
            rows = decode_rows(raw)
            named = self._numbers.get(rows.pool)
            if named is not None and self._wanted(named[0]):
                self._hearing.rows(self, *named, rows)
        for group in feed.absent:
            self._leave(group)
            self._hearing.void(self, (group,))
        self._hearing.received(size, len(feed.complete))

    def _start(self, start: GroupStart) -> None:
        self._leave(start.group)
        if len(self._numbers) + len(start.pools) > MAX_GROUPS:
            raise FormatError(f"more than {MAX_GROUPS} pools on one state stream")
        if not self._wanted(start.group):
            return
        self._groups[start.group] = tuple(number for number, _ in start.pools)
        for number, pool_id in start.pools:
            self._numbers[number] = (start.group, pool_id)
        self._hearing.begin(self, start)

    def _leave(self, group: GroupKey) -> None:
        for number in self._groups.pop(group, ()):
            self._numbers.pop(number, None)

    def leave(self, group: GroupKey) -> None:
        """The group is no longer followed on this stream."""
        if group in self._groups:
            self._leave(group)
            self._hearing.silent(self, (group,))

    def close(self) -> None:
        """The stream is over."""
        groups = tuple(self._groups)
        self._groups.clear()
        self._numbers.clear()
        self._hearing.silent(self, groups)

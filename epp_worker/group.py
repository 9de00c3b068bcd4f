"""One route group as this worker holds it: its pools' states, its picker, and who strays to it."""

import math
from collections.abc import Iterable

from epp_worker.extproc.budget import BodyShare
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from epp_worker.turns import Line
from fleet.control.messages import HoldReport
from fleet.model import GroupKey, Hold, PoolId, PoolRef, ShareEntry

RATE_SECONDS = 10.0
"""Over about how long a group's streams per second are smoothed."""


class Group:
    """State of one held group. Only `Holdings` changes it; the hot path reads and counts.

    Attributes:
        serving: the pools are known and their pods are listed: a stream can be answered.
        awaits_state: it opens, and the owner's state of it is on its way.
        awaits_models: its pools share it, and their model servers were not asked yet what they
            serve.
        scraped: every endpoint that was there at the opening was scraped once, or tried.
        streams: ext_proc streams begun here, ever.
        last_stray: loop time of the last stream that came while another worker owned the group.
        bodies: what its requests hold of the worker's budget.
        line: its messages that wait for their turn.
        draining_since: loop time at which the group was lost; inf while it is not draining.
    """

    __slots__ = (
        "_counted",
        "awaits_models",
        "awaits_state",
        "bodies",
        "draining_since",
        "hold",
        "key",
        "last_stray",
        "line",
        "owner",
        "picker",
        "pools",
        "rate",
        "scraped",
        "serving",
        "states",
        "streams",
        "was_owner",
    )

    def __init__(self, entry: ShareEntry) -> None:
        self.key: GroupKey = entry.group
        self.hold = entry.hold
        self.pools: tuple[PoolId, ...] = entry.pools
        self.owner = entry.owner
        self.states: dict[PoolRef, PoolState] = {}
        self.picker = GroupPicker()
        self.bodies = BodyShare()
        self.line = Line()
        self.serving = False
        self.scraped = False
        self.awaits_state = False
        self.awaits_models = False
        self.streams = 0
        self.rate = 0.0
        self.last_stray = -math.inf
        self.draining_since = math.inf
        self.was_owner = entry.hold is Hold.OWNER
        self._counted = 0

    def turn(self, entry: ShareEntry, now: float) -> None:
        """Take over what the entry says; loop time `now`."""
        if entry.hold is Hold.DRAINING:
            if self.hold is not Hold.DRAINING:
                self.draining_since = now
        else:
            self.draining_since = math.inf
        self.hold = entry.hold
        self.pools = entry.pools
        self.owner = entry.owner
        self.was_owner = self.was_owner or entry.hold is Hold.OWNER

    def knows_its_pools(self) -> bool:
        """Whether each pool that the share names is here in that very life."""
        return all(
            (state := self.states.get(pool.ref)) is not None and state.pool.uid == pool.uid
            for pool in self.pools
        )

    def synced(self) -> bool:
        """Whether the leader may count on this hold."""
        known = self.serving and self.knows_its_pools()
        if self.hold is Hold.OPENING and (self.awaits_state or self.awaits_models):
            return False
        return known and (self.scraped or self.hold is Hold.STANDBY)

    def quiet(self, now: float, quiet_seconds: float) -> bool:
        """Whether nothing has strayed here for `quiet_seconds`, counted from the loss at least.

        A group that was never owned here has no route that could still lead to it.
        """
        since = self.last_stray
        if self.was_owner and self.hold is Hold.DRAINING:
            since = max(since, self.draining_since)
        return now - since >= quiet_seconds

    def tick(self, seconds: float) -> None:
        """Smooth the stream rate over another `seconds`."""
        fresh = (self.streams - self._counted) / seconds
        self._counted = self.streams
        self.rate += (fresh - self.rate) * (1.0 - math.exp(-seconds / RATE_SECONDS))

    def report(self, now: float, quiet_seconds: float) -> HoldReport:
        """What the leader is told."""
        return HoldReport(
            group=self.key,
            hold=self.hold,
            synced=self.synced(),
            quiet=self.hold is Hold.DRAINING and self.quiet(now, quiet_seconds),
            streams_per_second=round(self.rate, 3),
        )


def inflight_of(groups: Iterable[Group]) -> dict[PoolRef, dict[str, int]]:
    """Requests in flight by pool and endpoint; a pool may be in two groups."""
    found: dict[PoolRef, dict[str, int]] = {}
    for group in groups:
        for ref, state in group.states.items():
            counts = found.setdefault(ref, {})
            for address, count in state.inflight().items():
                counts[address] = counts.get(address, 0) + count
    return found

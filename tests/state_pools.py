"""A publisher over groups that the test holds, in time that the test moves."""

import random
from collections.abc import Callable

from epp_worker.group import Group
from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.outbox import Outbox
from epp_worker.handover.publisher import Publisher
from epp_worker.scheduling.contract import Pick, PickRequest, Refusal
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_slots import seen_tables
from fleet.control.state_messages import Feed, PoolRows, decode_rows
from fleet.model import GroupKey, Hold, PoolId, PoolRef, ShareEntry
from fleet.model.pools import Endpoint, Pool

ORIGIN = "life-a"


class Timers:
    """The loop's clock and timers, run by hand."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, callback))

    def move(self, seconds: float) -> None:
        """Time passes."""
        end = self.now + seconds
        while ready := [each for each in self.due if each[0] <= end]:
            first = min(ready, key=lambda each: each[0])
            self.due.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


class Estate:
    """Groups, and what publishes them."""

    def __init__(self) -> None:
        self.time = Timers()
        self.groups: dict[GroupKey, Group] = {}
        self.counts = StreamCounts()
        self.publisher = Publisher(
            self.groups.get,
            lambda: ORIGIN,
            now=self.time,
            call_later=self.time.call_later,
            counts=self.counts,
        )
        self.woken = 0

    def add(self, name: str, endpoints: int = 2, hold: Hold = Hold.OWNER) -> GroupKey:
        """Hold a group of one pool."""
        key = GroupKey("ns", f"{name}-epp", 9002)
        ref = PoolRef("ns", name)
        group = Group(ShareEntry(key, hold, (PoolId(ref, "uid"),), "worker-a"))
        pool = Pool(ref, "uid", {"app": name}, (8000,), None)
        state = PoolState(pool, now=self.time, rng=random.Random(1), new_slot=seen_tables)
        state.set_endpoints(
            [
                Endpoint(f"{name}-{n}", f"{name}-{n}", f"10.0.{n >> 8}.{n & 255}:8000", 0)
                for n in range(1, endpoints + 1)
            ]
        )
        group.states[ref] = state
        self.groups[key] = group
        return key

    def pool(self, key: GroupKey) -> PoolState:
        """The pool of a group."""
        (state,) = self.groups[key].states.values()
        return state

    def pick(self, key: GroupKey) -> Pick:
        """One request."""
        picked = self.pool(key).pick(PickRequest("m", None, lambda _: None))
        assert not isinstance(picked, Refusal)
        return picked

    def outbox(self, *, whole: bool = True, pending_bytes: int = 1 << 20) -> Outbox:
        """A new peer."""

        def wake() -> None:
            self.woken += 1

        def lagged(groups: int) -> None:
            self.counts.snapshots_lagged += groups

        return Outbox(whole=whole, wake=wake, lagged=lagged, pending_bytes=pending_bytes)

    def sent(self, outbox: Outbox) -> list[Feed]:
        """All that a peer would get now."""
        feeds = []
        while (feed := outbox.next(self.publisher)) is not None:
            feeds.append(feed)
        return feeds


def rows_in(*feeds: Feed) -> list[PoolRows]:
    """The rows of messages."""
    return [decode_rows(raw) for feed in feeds for raw in feed.rows]


def counts_in(*feeds: Feed) -> dict[str, int]:
    """What messages say of our own requests, by endpoint; the last word counts."""
    found: dict[str, int] = {}
    for rows in rows_in(*feeds):
        found.update(rows.counts.get(ORIGIN, {}))
    return found

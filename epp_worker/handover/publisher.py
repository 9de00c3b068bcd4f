"""Tells followers what changes in the groups that they follow, in batches.

A pick costs what it costs to put the endpoint on a list, whatever the number of followers, and
nothing without any. A batch is encoded once for all. Groups in which nothing happens cost nothing.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from epp_worker.group import Group
from epp_worker.handover.counts import StreamCounts
from epp_worker.handover.outbox import Outbox
from epp_worker.handover.rows import PIECE_BYTES, rows_of, slot_rows, snapshot_rows
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.state_slots import StateSlot
from fleet.control.state_messages import GroupStart, PoolNumber
from fleet.model import GroupKey, PoolId

BATCH_SECONDS = 0.05
"""A change waits at most so long for others to go with it."""
POOLS_AT_ONCE = 100
"""Pools whose changes are encoded in one loop turn: about 2 ms."""
PIECES_AT_ONCE = 4
"""Pieces of one slot in a batch; what is left waits for the next one."""

CallLater = Callable[[float, Callable[[], None]], Any]
"""The loop's `call_later`."""


class _Watched:
    """One pool that is followed, and what changed in it since the last batch."""

    __slots__ = ("due", "group", "number", "pool", "said", "slots", "touched")

    def __init__(
        self, pool: PoolState, group: GroupKey, number: int, due: Callable[["_Watched"], None]
    ) -> None:
        self.pool = pool
        self.group = group
        self.number = number
        self.due = due
        self.touched: dict[EndpointState, None] = {}
        self.said: dict[EndpointState, int] = {}
        """Our own counts as last told to the owner that this worker follows itself."""
        self.slots: dict[str, None] = {}
        pool.watch(self.touch)
        pool.on_new_slot = self._record
        for slot in pool.slots.values():
            self._record(slot)

    def touch(self, state: EndpointState) -> None:
        """An endpoint changed; on the path of every pick."""
        if not self.touched:
            self.due(self)
        self.touched[state] = None

    def _record(self, slot: StateSlot) -> None:
        def changed() -> None:
            self.slots[slot.name] = None
            self.due(self)

        slot.record(changed)

    def news(self, states: Iterable[EndpointState]) -> list[EndpointState]:
        """Those whose own count the owner does not know yet; what it told us is no news to it."""
        found = []
        for state in states:
            own = state.inflight - state.foreign
            if self.said.get(state) != own:
                self.said[state] = own
                found.append(state)
        return found

    def drain(self) -> Iterator[msgspec.Raw]:
        """Take what changed in the slots."""
        names, self.slots = self.slots, {}
        for name in names:
            slot = self.pool.slots.get(name)
            if slot is None:
                continue
            for _ in range(PIECES_AT_ONCE):
                piece = slot.drain_delta(PIECE_BYTES)
                if piece is None:
                    break
                yield slot_rows(self.number, name, piece)
            else:
                self.slots[name] = None

    def close(self) -> None:
        """Nobody follows any more."""
        self.pool.watch(None)
        self.pool.on_new_slot = None
        for slot in self.pool.slots.values():
            slot.record(None)


class _Audience:
    """Who follows a group, and its pools as they are told of."""

    __slots__ = ("outboxes", "pools")

    def __init__(self) -> None:
        self.outboxes: dict[Outbox, None] = {}
        self.pools: tuple[_Watched, ...] = ()


class Publisher:
    """All that is told to others.

    Args:
        origin: the incarnation of this worker, as of now.
        now: monotonic seconds.
    """

    def __init__(
        self,
        get: Callable[[GroupKey], Group | None],
        origin: Callable[[], str],
        *,
        now: Callable[[], float],
        call_later: CallLater,
        counts: StreamCounts,
    ) -> None:
        self._get = get
        self._origin = origin
        self._now = now
        self._call_later = call_later
        self._counts = counts
        self._audiences: dict[GroupKey, _Audience] = {}
        self._due: dict[_Watched, None] = {}
        self._scheduled = False
        self._numbers = 0
        self.turnstile = asyncio.Lock()
        """Held while a chunk is made, and for the rest of that loop turn: one chunk a turn."""

    def add(self, outbox: Outbox, group: GroupKey) -> None:
        """The peer follows the group from now on, beginning with a snapshot."""
        audience = self._audiences.get(group)
        if audience is None:
            audience = self._audiences[group] = _Audience()
            self._watch(group, audience)
        audience.outboxes[outbox] = None
        outbox.owe(group)

    def remove(self, outbox: Outbox, groups: Collection[GroupKey]) -> None:
        """The peer follows these groups no longer."""
        for group in groups:
            outbox.drop(group)
            audience = self._audiences.get(group)
            if audience is None or outbox not in audience.outboxes:
                continue
            del audience.outboxes[outbox]
            if not audience.outboxes:
                self._unwatch(audience)
                del self._audiences[group]

    def group_changed(self, key: GroupKey) -> None:
        """The group was opened or dropped here, or has other pools: followers begin anew."""
        audience = self._audiences.get(key)
        if audience is None:
            return
        group = self._get(key)
        states = () if group is None else tuple(group.states.values())
        if tuple(watched.pool for watched in audience.pools) != states:
            self._unwatch(audience)
            self._watch(key, audience)
            for outbox in audience.outboxes:
                outbox.owe(key)

    def _watch(self, key: GroupKey, audience: _Audience) -> None:
        group = self._get(key)
        pools = []
        for state in () if group is None else group.states.values():
            self._numbers += 1
            pools.append(_Watched(state, key, self._numbers, self._is_due))
        audience.pools = tuple(pools)

    def _unwatch(self, audience: _Audience) -> None:
        for watched in audience.pools:
            watched.close()
            self._due.pop(watched, None)
        audience.pools = ()

    def begin(
        self, group: GroupKey, *, whole: bool
    ) -> tuple[GroupStart, Iterator[msgspec.Raw]] | None:
        """See `Snapshots.begin`."""
        audience = self._audiences.get(group)
        if audience is None or not audience.pools:
            return None
        self._counts.snapshots_sent += 1
        if not whole:
            for each in audience.pools:
                each.said.clear()
        numbers = tuple(
            PoolNumber(each.number, PoolId(each.pool.pool.ref, each.pool.pool.uid))
            for each in audience.pools
        )
        return GroupStart(group, numbers), self._pieces(audience.pools, whole=whole)

    def _pieces(self, pools: tuple[_Watched, ...], *, whole: bool) -> Iterator[msgspec.Raw]:
        for each in pools:
            yield from snapshot_rows(each.number, each.pool, self._origin(), self._now, whole=whole)

    def _is_due(self, watched: _Watched) -> None:
        self._due[watched] = None
        if not self._scheduled:
            self._scheduled = True
            self._call_later(BATCH_SECONDS, self.flush)

    def flush(self) -> None:
        """Encode what changed and put it into the followers' outboxes."""
        self._scheduled = False
        left = POOLS_AT_ONCE
        again: list[_Watched] = []
        while self._due and left:
            watched = next(iter(self._due))
            del self._due[watched]
            self._push(watched)
            if watched.slots:
                again.append(watched)
            left -= 1
        pause = 0.0 if self._due else BATCH_SECONDS
        self._due.update(dict.fromkeys(again))
        if self._due:
            self._scheduled = True
            self._call_later(pause, self.flush)

    def _push(self, watched: _Watched) -> None:
        touched, watched.touched = watched.touched, {}
        here = [state for state in touched if watched.pool.has(state)]
        slots = tuple(watched.drain())
        now = self._now()
        made: dict[bool, tuple[msgspec.Raw, ...]] = {}
        for outbox in tuple(self._audiences[watched.group].outboxes):
            if not outbox.wants(watched.group):
                continue
            rows = made.get(outbox.whole)
            if rows is None:
                states = here if outbox.whole else watched.news(here)
                rows = made[outbox.whole] = self._rows(watched, states, now, whole=outbox.whole)
            for row in (*rows, *slots):
                if outbox.wants(watched.group):
                    outbox.push(watched.group, row, now)

    def _rows(
        self, watched: _Watched, states: Collection[EndpointState], now: float, *, whole: bool
    ) -> tuple[msgspec.Raw, ...]:
        if not states:
            return ()
        pool, origin = watched.pool, self._origin()
        return (rows_of(watched.number, states, pool, origin, now, whole=whole),)

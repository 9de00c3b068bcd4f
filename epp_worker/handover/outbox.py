"""What one peer is still to be sent: snapshots that it is owed, and what changed since. Bounded.

A peer that does not keep up loses the changes that wait for it, and is owed a new snapshot of the
groups that they belong to: it can neither block nor grow the sender. Snapshots are made only as
fast as the peer takes them, a chunk at a time.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from fleet.control.state_messages import Feed, GroupStart
from fleet.model import GroupKey

CHUNK_BYTES = 32 * 1024
"""About the size of one message: what a loop turn may spend on a snapshot."""
GROUPS_AT_ONCE = 32
"""Snapshots begun in one message."""
PENDING_BYTES = 1024 * 1024
"""Changes that may wait for one peer."""


class Snapshots(Protocol):
    """Makes snapshots of groups."""

    def begin(
        self, group: GroupKey, *, whole: bool
    ) -> tuple[GroupStart, Iterator[msgspec.Raw]] | None:
        """The start and the rows of a group's snapshot, each row made when it is asked for; None
        if the group is not here."""
        ...


class Outbox:
    """The rest of one peer's stream.

    Args:
        whole: it is told all that is known here; else only what this worker has in flight, and the
            slots: an owner knows the rest better.
        wake: called when there is something to send.
        lagged: called with the number of groups when changes were dropped.
    """

    def __init__(
        self,
        *,
        whole: bool,
        wake: Callable[[], None],
        lagged: Callable[[int], None] = lambda _: None,
        pending_bytes: int = PENDING_BYTES,
    ) -> None:
        self.whole = whole
        self._wake = wake
        self._lagged = lagged
        self._limit = pending_bytes
        self._bytes = 0
        self._pending: deque[tuple[GroupKey, msgspec.Raw, float]] = deque()
        self._owed: dict[GroupKey, None] = {}
        self._current: tuple[GroupKey, Iterator[msgspec.Raw]] | None = None
        self._begun: set[GroupKey] = set()

    def owe(self, group: GroupKey) -> None:
        """The group's snapshot is to be sent, from its start."""
        self._stop(group)
        self._owed[group] = None
        self._wake()

    def drop(self, group: GroupKey) -> None:
        """The group is no longer followed."""
        self._stop(group)
        self._owed.pop(group, None)

    def _stop(self, group: GroupKey) -> None:
        if self._current is not None and self._current[0] == group:
            self._current = None
        if group in self._begun:
            self._begun.discard(group)
            self._pending = deque(item for item in self._pending if item[0] != group)
            self._bytes = sum(len(item[1]) for item in self._pending)

    def wants(self, group: GroupKey) -> bool:
        """Whether changes of the group are to be pushed: its snapshot has begun."""
        return group in self._begun

    def push(self, group: GroupKey, rows: msgspec.Raw, now: float) -> None:
        """Something changed in a group that is wanted; beyond the bound all changes are dropped."""
        if self._bytes + len(rows) > self._limit:
            self._lag(group)
        else:
            self._bytes += len(rows)
            self._pending.append((group, rows, now))
        self._wake()

    def _lag(self, group: GroupKey) -> None:
        groups = dict.fromkeys((group, *(item[0] for item in self._pending)))
        self._pending.clear()
        self._bytes = 0
        self._begun -= groups.keys()
        if self._current is not None and self._current[0] in groups:
            self._current = None
        self._owed.update(groups)
        self._lagged(len(groups))

    def owes(self) -> bool:
        """Whether a part of a snapshot is to be sent, not changes alone."""
        return self._current is not None or bool(self._owed)

    def oldest(self) -> float | None:
        """When the oldest change that waits was pushed."""
        return self._pending[0][2] if self._pending else None

    def pending_bytes(self) -> int:
        """Size of the changes that wait."""
        return self._bytes

    def next(self, snapshots: Snapshots) -> Feed | None:
        """The next message, or None when all is sent: first what changed, then snapshots."""
        rows: list[msgspec.Raw] = []
        size = 0
        while self._pending and size < CHUNK_BYTES:
            _, row, _ = self._pending.popleft()
            rows.append(row)
            size += len(row)
        self._bytes -= size
        starts: list[GroupStart] = []
        complete: list[GroupKey] = []
        absent: list[GroupKey] = []
        while size < CHUNK_BYTES and len(starts) + len(absent) < GROUPS_AT_ONCE:
            if self._current is None:
                if not self._owed:
                    break
                self._begin(next(iter(self._owed)), snapshots, starts, absent)
                continue
            group, pieces = self._current
            piece = next(pieces, None)
            if piece is None:
                complete.append(group)
                self._current = None
            else:
                rows.append(piece)
                size += len(piece)
        if not (rows or starts or complete or absent):
            return None
        return Feed(tuple(starts), tuple(rows), tuple(complete), tuple(absent))

    def _begin(
        self,
        group: GroupKey,
        snapshots: Snapshots,
        starts: list[GroupStart],
        absent: list[GroupKey],
    ) -> None:
        del self._owed[group]
        begun = snapshots.begin(group, whole=self.whole)
        if begun is None:
            absent.append(group)
            return
        start, pieces = begun
        starts.append(start)
        self._begun.add(group)
        self._current = (group, pieces)

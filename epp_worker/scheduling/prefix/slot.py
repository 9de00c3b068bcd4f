"""The prefix index as a followed slot: what stand-bys are told of it.

A piece lists, per endpoint, paths: blocks that follow each other on one chain, in the order in
which they were used. A snapshot's paths are what each turn still has; a change is told as the whole
chain of its request, so that the follower uses again what the owner used again. A follower that
applies them in order has the same blocks in the same order as the owner.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.figures import FiguresByName
from epp_worker.scheduling.prefix.index import Holding, Known, PrefixIndex
from epp_worker.scheduling.prefix.recency import HASH_BYTES

if TYPE_CHECKING:
    from epp_worker.scheduling.prefix.producer import ApproxPrefixCache

PREFIX = "prefix"
MAX_KEY_CHARS = 512
JOURNAL_BYTES = 4 * 1024 * 1024
"""Chains that wait to be told; beyond it only what their turns still have is told."""
JOURNAL_ENTRIES = 64
"""Turns that wait before those that later ones took over are looked for."""

_Rows = list[tuple[str, int, list[bytes]]]
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Rows)


class PrefixSlot:
    """A pool's prefix index; see `epp_worker.scheduling.state_slots.StateSlot`.

    Attributes:
        index: what it is about.
        figures: what the producers of all pools find.
        unnamed: the pool's producer where its configuration lists none.
    """

    name = PREFIX

    def __init__(self, budget: Budget, figures: FiguresByName | None = None) -> None:
        self.index = PrefixIndex(budget)
        self.figures = FiguresByName() if figures is None else figures
        self.unnamed: ApproxPrefixCache | None = None
        self._journal: dict[tuple[Holding, int], bytes] = {}
        self._journal_bytes = 0
        self._most_entries = JOURNAL_ENTRIES
        self._changed: Callable[[], None] | None = None
        self._quiet = False

    def listed(self, endpoints: Iterable[Known]) -> None:
        """These are the pool's endpoints now."""
        self.index.listed(endpoints)

    def record(self, changed: Callable[[], None] | None) -> None:
        """See `StateSlot.record`."""
        self._changed = changed
        self._journal.clear()
        self._journal_bytes = 0
        self.index.told = None if changed is None else self._note

    def _note(self, holding: Holding, turn: int) -> None:
        if self._quiet or self._changed is None:
            return
        if not self._journal:
            self._changed()
        chain = holding.recency.turn(turn) or b""
        if self._journal_bytes + len(chain) > JOURNAL_BYTES:
            chain = b""
        self._journal[holding, turn] = chain
        self._journal_bytes += len(chain)
        if len(self._journal) > self._most_entries:
            self._forget_the_superseded()

    def _forget_the_superseded(self) -> None:
        self._journal = {
            (owner, number): chain
            for (owner, number), chain in self._journal.items()
            if owner.recency.turn(number) is not None
        }
        self._most_entries = 2 * len(self._journal) + JOURNAL_ENTRIES
        self._journal_bytes = sum(map(len, self._journal.values()))

    def snapshot(self, limit: int) -> Iterator[bytes]:
        """See `StateSlot.snapshot`."""
        for holding in self.index.holdings():
            piece = _Piece(limit)
            for number in holding.recency.turns():
                path = holding.recency.turn(number)
                if path is not None and not holding.gone:
                    for part in _parts(path, limit):
                        piece.add(holding, part)
                        if piece.full:
                            yield piece.encoded()
                            piece = _Piece(limit)
            if piece.rows:
                yield piece.encoded()

    def drain_delta(self, limit: int) -> bytes | None:
        """See `StateSlot.drain_delta`."""
        piece = _Piece(limit)
        done = []
        for entry, chain in self._journal.items():
            if piece.full:
                break
            done.append(entry)
            holding, number = entry
            left = holding.recency.turn(number)
            if left is not None and not holding.gone:
                piece.add(holding, self._used(holding, chain, left))
        for entry in done:
            self._journal_bytes -= len(self._journal.pop(entry))
        return piece.encoded() if piece.rows else None

    def _used(self, holding: Holding, chain: bytes, left: bytes) -> bytes:
        """The whole chain, unless its beginning was evicted since: then what is left of it."""
        if len(left) >= len(chain):
            return left
        (first,) = array("Q", chain[:HASH_BYTES])
        return chain if self.index.has(holding, first) else left

    def apply(self, origin: str, data: bytes, *, relay: bool) -> None:
        """See `StateSlot.apply`."""
        del origin  # what is cached stays cached when the one that told it is gone
        try:
            rows = _decoder.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"unreadable piece of {self.name}: {error}") from error
        for key, capacity, paths in rows:
            if len(key) > MAX_KEY_CHARS or any(len(path) % HASH_BYTES for path in paths):
                raise ValueError(f"unreadable piece of {self.name}: no path of blocks")
            holding = self.index.find(key)
            if holding is not None:
                for path in paths:
                    self._apply(holding, array("Q", path).tolist(), capacity, relay=relay)

    def _apply(self, holding: Holding, path: list[int], capacity: int, *, relay: bool) -> None:
        """A path that begins amid a stretch is taken from where it goes beyond what is here."""
        if not path:
            return
        known = self.index.has(holding, path[-1])
        if not holding.recency.begins(path[0]):
            first = 0
            while first < len(path) and self.index.has(holding, path[first]):
                first += 1
            path = path[first:]
            if not path:
                return
        # Only what is new is told on, or two that feed each other would never be silent.
        self._quiet = known or not relay
        try:
            self.index.add_to(holding, path, capacity)
        finally:
            self._quiet = False

    def clear_origin(self, origin: str) -> None:
        """See `StateSlot.clear_origin`: what is cached stays cached."""


class _Piece:
    """Rows of about so many bytes."""

    __slots__ = ("_limit", "_size", "rows")

    def __init__(self, limit: int) -> None:
        self.rows: _Rows = []
        self._limit = limit
        self._size = 0

    @property
    def full(self) -> bool:
        return self._size >= self._limit

    def add(self, holding: Holding, path: bytes) -> None:
        if not self.rows or self.rows[-1][0] != holding.key:
            self.rows.append((holding.key, holding.capacity, []))
            self._size += len(holding.key) + 16
        self.rows[-1][2].append(path)
        self._size += len(path) + 3

    def encoded(self) -> bytes:
        return _encoder.encode(self.rows)


def _parts(path: bytes, limit: int) -> Iterator[bytes]:
    """A path in paths of about `limit` bytes at most."""
    step = max(HASH_BYTES, limit - limit % HASH_BYTES)
    for start in range(0, len(path), step):
        yield path[start : start + step]

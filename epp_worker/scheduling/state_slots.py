"""State of a pool that a stand-by must know too: what anything followed offers.

A slot is one such thing (LoRA memory, session affinity, a prefix index). It writes and reads its
own pieces; what carries them only bounds their size. All that a piece says are present values, so
that a piece read twice changes nothing. Two workers may feed each other: what an owner tells is
never told on, and what it is told only as far as it is new, or news would run in circles.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from epp_worker.scheduling.endpoint import EndpointState

MAX_PAIRS = 16_384
"""Pairs in one table; the one unseen for longest goes."""
MAX_KEY_CHARS = 256
"""Longer keys and addresses are not remembered."""
RESOLUTION_SECONDS = 1.0
"""A pair that is told to be newer by less is not news."""

LORA = "lora"
AFFINITY = "affinity"


class StateSlot(Protocol):
    """One followed thing of one pool."""

    name: str

    def record(self, changed: Callable[[], None] | None) -> None:
        """From now on remember what changes, and call `changed` when something first did after
        each drain; None: nobody follows, remember nothing."""
        ...

    def snapshot(self, limit: int) -> Iterator[bytes]:
        """All of it in pieces of about `limit` bytes at most, each made when it is asked for; the
        slot may change between two of them."""
        ...

    def drain_delta(self, limit: int) -> bytes | None:
        """Take up to about `limit` bytes of what changed; None when nothing is left. What waits
        here is bounded by what the slot itself may hold."""
        ...

    def apply(self, origin: str, data: bytes, *, relay: bool) -> None:
        """Merge a piece that another worker's slot of this name made.

        Args:
            origin: the incarnation of the worker that told it.
            relay: what is new in it is to be told on, as a change of our own.

        Raises:
            ValueError: it cannot be read.
        """
        ...

    def clear_origin(self, origin: str) -> None:
        """That incarnation is dead: forget what was true only while it lived."""
        ...


@runtime_checkable
class ListedSlot(Protocol):
    """A slot that must know who the pool's endpoints are."""

    def listed(self, endpoints: "Iterable[EndpointState]") -> None:
        """These are the ready endpoints from now on."""
        ...


NewSlot = Callable[[str, Callable[[], float]], StateSlot | None]
"""Makes the slot of a name, given a monotonic clock; None for a name that is unknown here."""

_encoder = msgspec.msgpack.Encoder()
_pieces = msgspec.msgpack.Decoder(list[tuple[str, str, int]])


class SeenTable:
    """Which key was last seen at which endpoints: adapters loaded there, sessions served there.

    Args:
        now: monotonic seconds.
    """

    def __init__(self, name: str, now: Callable[[], float], limit: int = MAX_PAIRS) -> None:
        self.name = name
        self._now = now
        self._limit = limit
        self._seen: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._addresses: dict[str, set[str]] = {}
        self._journal: dict[tuple[str, str], None] = {}
        self._changed: Callable[[], None] | None = None

    def note(self, key: str, address: str) -> None:
        """The key is at this endpoint now."""
        self._put((key, address), self._now(), news=True)

    def at(self, key: str) -> Mapping[str, float]:
        """Where the key was seen, and how many seconds ago."""
        now = self._now()
        return {address: now - self._seen[key, address] for address in self._addresses.get(key, ())}

    def __len__(self) -> int:
        return len(self._seen)

    def _put(self, pair: tuple[str, str], at: float, *, news: bool) -> None:
        if max(map(len, pair)) > MAX_KEY_CHARS:
            return
        self._seen[pair] = at
        self._seen.move_to_end(pair)
        self._addresses.setdefault(pair[0], set()).add(pair[1])
        while len(self._seen) > self._limit:
            self._forget(next(iter(self._seen)))
        if news and self._changed is not None and pair in self._seen:
            if not self._journal:
                self._changed()
            self._journal[pair] = None

    def _forget(self, pair: tuple[str, str]) -> None:
        del self._seen[pair]
        self._journal.pop(pair, None)
        addresses = self._addresses[pair[0]]
        addresses.discard(pair[1])
        if not addresses:
            del self._addresses[pair[0]]

    def record(self, changed: Callable[[], None] | None) -> None:
        """See `StateSlot.record`."""
        self._changed = changed
        self._journal.clear()

    def snapshot(self, limit: int) -> Iterator[bytes]:
        """See `StateSlot.snapshot`."""
        pairs = iter(tuple(self._seen))
        while piece := self._piece(pairs, limit):
            yield piece

    def drain_delta(self, limit: int) -> bytes | None:
        """See `StateSlot.drain_delta`."""
        some = dict.fromkeys(islice(self._journal, max(1, limit // 32)))
        taken = iter(some)
        piece = self._piece(taken, limit)
        left = set(taken)
        for pair in some:
            if pair not in left:
                del self._journal[pair]
        return piece

    def _piece(self, pairs: Iterator[tuple[str, str]], limit: int) -> bytes | None:
        now = self._now()
        rows = []
        size = 0
        while size < limit and (pair := next(pairs, None)) is not None:
            at = self._seen.get(pair)
            if at is not None:
                rows.append((*pair, round((now - at) * 1000)))
                size += len(pair[0]) + len(pair[1]) + 8
        return _encoder.encode(rows) if rows else None

    def apply(self, origin: str, data: bytes, *, relay: bool) -> None:
        """See `StateSlot.apply`."""
        del origin  # what was seen stays true when it is gone
        now = self._now()
        try:
            pairs = _pieces.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"unreadable piece of {self.name}: {error}") from error
        for key, address, age in pairs:
            at = now - max(0, age) / 1000
            known = self._seen.get((key, address))
            if known is None or at > known + RESOLUTION_SECONDS:
                self._put((key, address), at, news=relay)

    def clear_origin(self, origin: str) -> None:
        """See `StateSlot.clear_origin`: what was seen stays true."""


def seen_tables(name: str, now: Callable[[], float]) -> StateSlot | None:
    """The slots that every pool has: LoRA memory and session affinity."""
    return SeenTable(name, now) if name in (LORA, AFFINITY) else None

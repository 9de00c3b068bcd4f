"""A slot as large as a real prefix index: per endpoint, the last 31,250 block hashes."""

import array
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import msgspec

ENTRIES = 31_250
ENDPOINTS = 8
NAME = "prefix"


class PrefixStandIn:
    """Which blocks each endpoint has cached, as far as its capacity reaches."""

    name = NAME

    def __init__(self) -> None:
        self.blocks: dict[str, OrderedDict[int, None]] = {}
        self._journal: dict[tuple[str, int], None] = {}
        self._changed: Callable[[], None] | None = None
        self.cleared: list[str] = []

    def add(self, address: str, blocks: Iterable[int], *, news: bool = True) -> None:
        """A prompt of these blocks went to an endpoint."""
        known = self.blocks.setdefault(address, OrderedDict())
        for block in blocks:
            self._add(address, known, block, news=news)

    def _add(self, address: str, known: OrderedDict[int, None], block: int, *, news: bool) -> None:
        new = news and block not in known
        known[block] = None
        known.move_to_end(block)
        if len(known) > ENTRIES:
            known.popitem(last=False)
        if new and self._changed is not None:
            if not self._journal:
                self._changed()
            self._journal[address, block] = None

    def record(self, changed: Callable[[], None] | None) -> None:
        self._changed = changed
        self._journal.clear()

    def snapshot(self, limit: int) -> Iterator[bytes]:
        for address in tuple(self.blocks):
            blocks = array.array("Q", self.blocks[address])
            for start in range(0, len(blocks), limit // 8):
                yield _piece([(address, blocks[start : start + limit // 8])])

    def drain_delta(self, limit: int) -> bytes | None:
        some = list(islice(self._journal, limit // 8))
        by_address: dict[str, array.array[int]] = {}
        for pair in some:
            del self._journal[pair]
            by_address.setdefault(pair[0], array.array("Q")).append(pair[1])
        return _piece(list(by_address.items())) if some else None

    def apply(self, origin: str, data: bytes, *, relay: bool) -> None:
        del origin
        for address, packed in msgspec.msgpack.decode(data, type=list[tuple[str, bytes]]):
            self.add(address, array.array("Q", packed), news=relay)

    def clear_origin(self, origin: str) -> None:
        self.cleared.append(origin)


def _piece(parts: list[tuple[str, "array.array[int]"]]) -> bytes:
    return msgspec.msgpack.encode([(address, blocks.tobytes()) for address, blocks in parts])


def full() -> PrefixStandIn:
    """One of the size of a real one: 250,000 entries, 2 MB."""
    index = PrefixStandIn()
    rng = random.Random(5)
    for number in range(1, ENDPOINTS + 1):
        index.add(f"10.0.0.{number}:8000", (rng.getrandbits(64) for _ in range(ENTRIES)))
    return index

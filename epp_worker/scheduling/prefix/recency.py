"""The blocks that one endpoint has cached, least recently used first.

What is kept is not a list of blocks but of turns: one request's chain, as one piece of bytes. A
later request that shares a beginning takes those blocks over, so every block has one owner, and
what an owner still has is one unbroken stretch of its chain. Therefore the owner of any block on a
chain is found by the first block of its stretch, and where two chains part is found by halving
(equal hashes mean equal beginnings): a request costs a few steps, however many blocks it has, and a
block costs 8 bytes here. The order is exactly that of an LRU that is given block by block.

Only bytes and numbers are kept in plain dicts: Python's garbage collector need not visit them.
"""

import struct
from array import array
from collections.abc import Iterator
from typing import Final

HASH_BYTES: Final = 8
"""A block in a turn."""

_one: Final = struct.Struct("=Q").unpack_from


class Recency:
    """The turns of one endpoint.

    Attributes:
        size: blocks in all turns.
    """

    __slots__ = ("_head", "_next", "_order", "_starts", "_turns", "size")

    def __init__(self) -> None:
        self.size = 0
        self._next = 0
        self._turns: dict[int, bytes] = {}
        self._starts: dict[int, int] = {}
        self._order = array("q")
        self._head = 0

    def __len__(self) -> int:
        """Turns that own a block."""
        return len(self._turns)

    def touch(self, path: list[int]) -> tuple[int, list[int]]:
        """These blocks, which follow each other on one chain, are the most recently used now.

        The first one must be the first of its owner's stretch, or be held by none.

        Returns:
            The turn's number, and those blocks that were not here.
        """
        data = array("Q", path).tobytes()
        starts = self._starts
        end = len(path)
        at = 0
        while at < end and (turn := starts.pop(path[at], None)) is not None:
            at = self._take(turn, data, at)
        new = path[at:] if at else path
        if not starts.keys().isdisjoint(new):
            new = self._take_islands(path, data, at)
        turn = self._next
        self._next += 1
        self._turns[turn] = data
        starts[path[0]] = turn
        self._order.append(turn)
        if len(self._order) > 2 * len(self._turns) + 64:
            self._order = array("q", self._turns)
            self._head = 0
        self.size += len(new)
        return turn, new

    def _take_islands(self, path: list[int], data: bytes, at: int) -> list[int]:
        """Behind a gap (whose blocks were evicted) more blocks are held: take these over too."""
        new = []
        while at < len(path):
            turn = self._starts.pop(path[at], None)
            if turn is None:
                new.append(path[at])
                at += 1
            else:
                at = self._take(turn, data, at)
        return new

    def _take(self, turn: int, data: bytes, at: int) -> int:
        """Take from a turn what it shares with the chain from block `at` on; where that ends."""
        old = self._turns[turn]
        begin = at * HASH_BYTES
        longest = min(len(old), len(data) - begin)
        if old[:longest] == data[begin : begin + longest]:
            shared = longest
        else:
            shared = _parting(old, data, begin, longest)
        self._rest(turn, old, shared)
        return at + shared // HASH_BYTES

    def _rest(self, turn: int, old: bytes, gone: int) -> None:
        if gone == len(old):
            del self._turns[turn]
        else:
            self._turns[turn] = old[gone:]
            self._starts[_one(old, gone)[0]] = turn

    def evict(self, blocks: int) -> list[int]:
        """Forget so many blocks, least recently used first, the first of a chain first."""
        evicted = array("Q")
        while blocks > 0 and self._turns:
            turn = self._oldest()
            old = self._turns[turn]
            gone = min(blocks * HASH_BYTES, len(old))
            evicted.frombytes(old[:gone])
            first = _one(old)[0]
            if self._starts.get(first) == turn:
                del self._starts[first]
            self._rest(turn, old, gone)
            blocks -= gone // HASH_BYTES
        self.size -= len(evicted)
        return evicted.tolist()

    def _oldest(self) -> int:
        while self._order[self._head] not in self._turns:
            self._head += 1
        return self._order[self._head]

    def turns(self) -> "array[int]":
        """The numbers of the turns, least recently used first."""
        return array("q", self._turns)

    def turn(self, number: int) -> bytes | None:
        """The blocks that a turn still has; None = none."""
        return self._turns.get(number)

    def begins(self, block: int) -> bool:
        """Whether a stretch begins with this block."""
        return block in self._starts

    def blocks(self) -> Iterator[int]:
        """All blocks, least recently used first."""
        for data in self._turns.values():
            yield from array("Q", data)


def _parting(old: bytes, data: bytes, begin: int, longest: int) -> int:
    """How many bytes two chains share, the first block for certain."""
    low, high = 1, longest // HASH_BYTES
    while low < high:
        middle = (low + high + 1) // 2
        at = (middle - 1) * HASH_BYTES
        if old[at : at + HASH_BYTES] == data[begin + at : begin + at + HASH_BYTES]:
            low = middle
        else:
            high = middle - 1
    shared = low * HASH_BYTES
    if old[:shared] == data[begin : begin + shared]:
        return shared
    # Hashes that a client made collide: only what is equal is taken, found by whole beginnings.
    low, high = 1, low - 1
    while low < high:
        middle = (low + high + 1) // 2
        shared = middle * HASH_BYTES
        if old[:shared] == data[begin : begin + shared]:
            low = middle
        else:
            high = middle - 1
    return low * HASH_BYTES

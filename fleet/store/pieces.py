"""Long lists in stored documents, deflated piece by piece: only what changed is deflated again.

Of ten thousand groups a change concerns a hundred, and to write them all as JSON and deflate that
took the leader 30 ms a map, and as long again for the shares of seventy workers. Deflate lets a
stream be put together of parts that refer to nothing outside (a full flush ends each), and its
checksum be computed from those of the parts. So what comes out is one zlib stream like any other.

A list is cut after items that are chosen by their group's hash: a new item or one that goes changes
one piece, wherever it is.
"""

import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from fleet.model import GroupKey

LEVEL: Final = 1
"""Level 6 saves 20 % of the bytes for 3 times the time."""

ITEMS: Final = 16
"""In a piece, on average: fewer are packed sooner where few have changed, and cost more bytes."""

_STORED: Final = 0xFFFF
"""The most that one stored block holds."""

_MODULUS: Final = 65521
"""Of Adler-32 (RFC 1950)."""


class Item(Protocol):
    """What such a list is of."""

    @property
    def group(self) -> GroupKey:
        """The group that it speaks of; no two of one list speak of the same."""
        ...


class Piece(NamedTuple):
    """Some items, deflated.

    Attributes:
        first: whether the list begins with it: all others begin with a comma.
        adler, size: of the text.
    """

    items: tuple[Item, ...]
    first: bool
    deflated: bytes
    adler: int
    size: int


class Pieces:
    """The pieces of one list after another.

    Args:
        items: in a piece, on average.
    """

    def __init__(self, items: int = ITEMS) -> None:
        self._items = items
        self._known: dict[GroupKey, Piece] = {}

    def of(self, items: Iterable[Item], encoder: msgspec.json.Encoder) -> list[Piece]:
        """The list's pieces, those as they were that are."""
        pieces: list[Piece] = []
        for cut in _cut(items, self._items):
            known = self._known.get(cut[0].group)
            if known is None or known.first is not (not pieces) or known.items != cut:
                text = encoder.encode(cut)[1:-1]
                known = _piece(cut, text if not pieces else b"," + text, first=not pieces)
            pieces.append(known)
        self._known = {piece.items[0].group: piece for piece in pieces}
        return pieces


def deflated(head: bytes, pieces: Iterable[Piece], tail: bytes) -> bytes:
    """One zlib stream of `head`, the pieces' text and `tail`; only the pieces are made smaller."""
    parts, adler = [b"\x78\x01", _stored(head, last=False)], zlib.adler32(head)
    for piece in pieces:
        parts.append(piece.deflated)
        adler = _joined(adler, piece.adler, piece.size)
    parts.append(_stored(tail, last=True))
    adler = _joined(adler, zlib.adler32(tail), len(tail))
    return b"".join((*parts, adler.to_bytes(4, "big")))


def _stored(text: bytes, *, last: bool) -> bytes:
    """Blocks of plain text (RFC 1951, 3.2.4)."""
    blocks: list[bytes] = []
    for start in range(0, max(len(text), 1), _STORED):
        block = text[start : start + _STORED]
        final = last and start + _STORED >= len(text)
        size = len(block)
        blocks += (bytes((final,)), size.to_bytes(2, "little"))
        blocks += ((size ^ 0xFFFF).to_bytes(2, "little"), block)
    return b"".join(blocks)


def _cut(items: Iterable[Item], average: int) -> Iterator[tuple[Item, ...]]:
    piece: list[Item] = []
    for item in items:
        piece.append(item)
        if not hash(item.group) % average:
            yield tuple(piece)
            piece = []
    if piece:
        yield tuple(piece)


def _piece(items: tuple[Item, ...], text: bytes, *, first: bool) -> Piece:
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = deflate.compress(text) + deflate.flush(zlib.Z_FULL_FLUSH)
    return Piece(items, first, data, zlib.adler32(text), len(text))


def _joined(one: int, two: int, size: int) -> int:
    """Adler-32 of two texts in a row; `size` is the second one's length."""
    low, high = one & 0xFFFF, one >> 16
    sums = (low + (two & 0xFFFF) - 1) % _MODULUS
    return ((high + (two >> 16) + size * (low - 1)) % _MODULUS) << 16 | sums

"""The beginning of a long JSON value, read without reading the rest.

A prompt of megabytes is compared by its first part only, and decoding all of it takes milliseconds
in which every other request of the worker waits. So the JSON is cut, and what is open at the cut is
closed. Where that does not come out as JSON, the whole value has to be read: nothing is guessed.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

MOST_ROUNDS: Final = 16
"""Nesting of what is closed again before the cut; deeper values are read whole."""
MOST_OPEN: Final = 64
"""Nesting at the cut, likewise."""
_LONGEST_ESCAPE: Final = 12
"""Bytes of an escaped surrogate pair."""

_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_CLOSING: Final = bytes.maketrans(b"[{", b"]}")

decode: Callable[[bytes], Any] = msgspec.json.decode


def opening(value: memoryview, size: int) -> Any:
    """A JSON value as far as it stands in the first `size` bytes; None if that cannot be told.

    A string ends at the cut, a list or object lacks what comes later.

    Args:
        value: valid JSON of more than `size` bytes.
    """
    part = bytes(value[:size])
    # Without escapes, every quote begins or ends a string.
    bare = part.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = bare.split(b'"')
    if len(outside) % 2 == 0:
        closed = part[: _whole_characters(value, part)] + b'"'
    else:
        closed = part[: part.rfind(b'"') + 1]
        outside = outside[:-1]
    brackets = _still_open(b"".join(outside[::2]).translate(None, _NO_BRACKETS))
    if brackets is None or not closed:
        return None
    try:
        return decode(closed + brackets[::-1].translate(_CLOSING))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # the cut is in a key, say


def _whole_characters(value: memoryview, part: bytes) -> int:
    """Where to cut a string so that no escape and no character is cut."""
    cut = len(part)
    escape = part.rfind(b"\\", cut - _LONGEST_ESCAPE)
    if escape >= 0:
        return len(part[: escape + 1].rstrip(b"\\"))
    while cut > 0 and value[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut


def _still_open(brackets: bytes) -> bytes | None:
    for _ in range(MOST_ROUNDS):
        less = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if less == brackets:
            return less if len(less) <= MOST_OPEN else None
        brackets = less
    return None

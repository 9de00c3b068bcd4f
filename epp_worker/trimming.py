"""Gives back to the system what a flood of large bodies has left free in the allocator.

Pieces of bodies are freed as soon as they are read, but glibc returns only the end of its heap: one
small object behind 200 MiB of free pieces keeps all of them resident, and counted against the pod.
"""

import ctypes
import sys
from collections.abc import Callable
from typing import Final

LEAST_BYTES: Final = 64 * 1024 * 1024
"""A peak below this is not worth it: giving back 200 MiB takes 50 ms, of a thread, in which the
loop may have to wait for the allocator."""

REST_SECONDS: Final = 30.0
"""Between two times: what floods come again may use what is free."""


class Trimmer:
    """Decides when; pure but for `give_back`.

    Args:
        give_back: returns free memory to the system; may take long.
    """

    def __init__(self, give_back: Callable[[], None]) -> None:
        self._give_back = give_back
        self._peak = 0
        self._not_before = 0.0

    def due(self, now: float, peak: int, held: int) -> Callable[[], None] | None:
        """What is to be called, in a thread, now that little is left of what was held.

        Args:
            now: seconds, monotonic.
            peak: the most bytes that were held since the last time.
            held: bytes held now.
        """
        self._peak = max(self._peak, peak)
        if now < self._not_before or self._peak < LEAST_BYTES or held > self._peak // 4:
            return None
        self._peak = held
        self._not_before = now + REST_SECONDS
        return self._give_back


def allocator() -> Callable[[], None]:
    """glibc's `malloc_trim`; elsewhere nothing."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            return lambda: _ignore(trim(0))
    return lambda: None


def _ignore(_: object) -> None:
    """Whether anything was given back is of no interest."""

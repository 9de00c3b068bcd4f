"""When memory that is free goes back to the system: after a flood of large bodies, not after each.

glibc by itself maps each block of a large body anew, and the system clears every page of it: a body
of 10 MiB costs 15 ms of the loop that way, 8 of them for pages, and 7 when blocks come from memory
that is kept. So it is told to keep up to `KEPT_BYTES` (room that a pod's memory limit must leave),
and asked to give back what a flood has left beyond them.

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

KEPT_BYTES: Final = 64 * 1024 * 1024
"""Free memory at the end of the heap that stays for the next bodies."""

_MOST_MAPPED: Final = 32 * 1024 * 1024
"""Blocks below this come from the heap: the most that glibc takes (DEFAULT_MMAP_THRESHOLD_MAX)."""
_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3

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
    """Have glibc keep free memory; returns its `malloc_trim`. With another allocator nothing."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        trim, set_option = (getattr(library, name, None) for name in ("malloc_trim", "mallopt"))
        if trim is not None and set_option is not None:
            set_option(_M_MMAP_THRESHOLD, _MOST_MAPPED)
            set_option(_M_TRIM_THRESHOLD, KEPT_BYTES)
            return lambda: _ignore(trim(0))
    return lambda: None


def _ignore(_: object) -> None:
    """Whether anything was given back is of no interest."""

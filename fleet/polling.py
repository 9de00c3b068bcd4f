"""An event loop that thousands of closing connections do not keep from its work.

asyncio handles everything that is ready in one turn. When 6,000 connections close at once, that is
0.3 s in which nobody else is heard. Here only so much of what closed is handled in a turn.
"""

import asyncio
import contextlib
import math
import select
import selectors
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

HANG_UPS: Final = 32
"""Handled in one turn; each takes 60 us, with all that hangs on it."""

_LOOKED_AT: Final = 1024
"""Of what is ready in one turn; the kernel tells of the rest first the next time."""


class _Loop(asyncio.SelectorEventLoop):
    """Its clock is the same, without a Python call around it: streams ask it 30 times each."""

    time = staticmethod(time.monotonic)


def run_loop() -> asyncio.AbstractEventLoop:
    """A new event loop; where there is no epoll, the usual one."""
    if sys.platform != "linux":
        return asyncio.new_event_loop()
    return _Loop(FairSelector())


if sys.platform == "linux":
    _OVER: Final = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP

    class FairSelector(selectors.BaseSelector):
        """See `selectors.EpollSelector`; of what hung up only so much is told at once."""

        def __init__(self) -> None:
            self._epoll = select.epoll()
            self._keys: dict[int, selectors.SelectorKey] = {}

        def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
            """See `selectors.BaseSelector`."""
            key = selectors.SelectorKey(fileobj, _number(fileobj), events, data)
            if key.fd in self._keys:
                raise KeyError(f"{fileobj!r} is registered already")
            self._epoll.register(key.fd, _mask(events))
            self._keys[key.fd] = key
            return key

        def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
            """See `selectors.BaseSelector`."""
            number = _number(fileobj)
            old = self._keys[number]
            if old.events != events:
                self._epoll.modify(number, _mask(events))
            key = self._keys[number] = old._replace(events=events, data=data)
            return key

        def unregister(self, fileobj: Any) -> selectors.SelectorKey:
            """See `selectors.BaseSelector`."""
            key = self._keys.pop(_number(fileobj))
            with contextlib.suppress(OSError):  # closed already, which is as good
                self._epoll.unregister(key.fd)
            return key

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """See `selectors.BaseSelector`; what is not told now is told the next time."""
            if timeout is not None:  # in whole milliseconds, never shorter than was asked for
                timeout = math.ceil(max(timeout, 0.0) * 1e3) * 1e-3
            ready = []
            left = HANG_UPS
            for number, seen in self._epoll.poll(timeout, _LOOKED_AT):
                if seen & _OVER:
                    left -= 1
                    if left < 0:
                        continue
                key = self._keys.get(number)
                if key is not None:
                    ready.append((key, _events(seen) & key.events))
            return ready

        def close(self) -> None:
            """See `selectors.BaseSelector`."""
            self._epoll.close()
            self._keys.clear()

        def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
            """The registered, by number."""
            return self._keys

        def get_key(self, fileobj: Any) -> selectors.SelectorKey:
            """See `selectors.BaseSelector`."""
            return self._keys[_number(fileobj)]

    def _number(fileobj: Any) -> int:
        number = fileobj if isinstance(fileobj, int) else int(fileobj.fileno())
        if number < 0:
            raise ValueError(f"{fileobj!r} is closed")
        return number

    def _mask(events: int) -> int:
        reading = select.EPOLLIN | select.EPOLLRDHUP if events & selectors.EVENT_READ else 0
        return reading | (select.EPOLLOUT if events & selectors.EVENT_WRITE else 0)

    def _events(seen: int) -> int:
        writing = selectors.EVENT_WRITE if seen & ~(select.EPOLLIN | select.EPOLLRDHUP) else 0
        return writing | (selectors.EVENT_READ if seen & ~select.EPOLLOUT else 0)

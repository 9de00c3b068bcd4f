"""Of many connections that close at once only some are handled in a turn; nothing else waits."""

import asyncio
import selectors
import socket
import sys
from collections.abc import Iterator

import pytest

from fleet.polling import HANG_UPS, FairSelector, run_loop

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="epoll is Linux's")

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    """More than are handled in one turn."""
    made = [socket.socketpair() for _ in range(HANG_UPS * 2)]
    yield made
    for one in made:
        for end in one:
            end.close()


@pytest.fixture
def selector() -> Iterator[FairSelector]:
    """A new one."""
    made = FairSelector()
    yield made
    made.close()


def test_hang_ups_come_last_and_all_come(selector: FairSelector, pairs: list[Pair]) -> None:
    """The one that has something to say is heard in the first turn, behind all that closed."""
    quiet, loud = socket.socketpair()
    for ours, theirs in pairs:
        selector.register(ours, READ)
        theirs.close()
    selector.register(quiet, READ, "loud")
    loud.send(b"x")
    seen: set[int] = set()
    first = selector.select(0)
    assert "loud" in [key.data for key, _ in first]
    assert len(first) == HANG_UPS + 1
    for key, events in first:
        assert events == READ
        seen.add(key.fd)
        selector.unregister(key.fileobj)
    assert {key.fd for key, _ in selector.select(0)}.isdisjoint(seen)
    assert len(selector.select(0)) == HANG_UPS
    for end in (quiet, loud):
        end.close()


def test_events_are_those_asked_for(selector: FairSelector, pairs: list[Pair]) -> None:
    """Readable, writable, both; changed and taken back."""
    ours, theirs = pairs[0]
    selector.register(ours, READ, 1)
    assert selector.select(0) == []
    selector.modify(ours, READ | WRITE, 2)
    assert selector.select(0) == [(selector.get_key(ours), WRITE)]
    theirs.send(b"x")
    assert selector.select(0) == [(selector.get_key(ours), READ | WRITE)]
    with pytest.raises(KeyError):
        selector.register(ours, READ)
    assert selector.unregister(ours).data == 2
    assert selector.select(0) == []
    assert len(selector.get_map()) == 0
    with pytest.raises(KeyError):
        selector.get_key(ours)


def test_what_was_closed_can_be_taken_back(selector: FairSelector) -> None:
    """By number; a closed socket itself has none any more."""
    ours, theirs = socket.socketpair()
    number = ours.fileno()
    selector.register(ours, READ)
    ours.close()
    theirs.close()
    assert selector.unregister(number).fd == number
    with pytest.raises(ValueError, match="closed"):
        selector.register(ours, READ)


def test_a_whole_loop_runs_on_it(pairs: list[Pair]) -> None:
    """Streams, timers, threads, and many ends at once."""

    async def ended(end: socket.socket) -> bytes:
        reader, writer = await asyncio.open_connection(sock=end)
        data = await reader.read()
        writer.close()
        return data

    async def scene() -> list[bytes]:
        waiting = [asyncio.create_task(ended(ours)) for ours, _ in pairs]
        await asyncio.sleep(0.001)
        assert await asyncio.to_thread(lambda: 7) == 7
        for _, theirs in pairs:
            theirs.send(b"bye")
            theirs.close()
        return await asyncio.gather(*waiting)

    with asyncio.Runner(loop_factory=run_loop) as runner:
        assert runner.run(scene()) == [b"bye"] * len(pairs)

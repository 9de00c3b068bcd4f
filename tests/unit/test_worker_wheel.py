"""Deadlines of many streams on one timer."""

import asyncio

import pytest

from epp_worker.wheel import TICK_SECONDS, Wheel


@pytest.mark.looptime
async def test_entries_expire_in_time_and_never_early() -> None:
    """Each lane keeps its own time; at most one tick late."""
    loop = asyncio.get_running_loop()
    wheel = Wheel(loop)
    short, long = wheel.lane(0.1), wheel.lane(5.0)
    expired: list[tuple[str, float]] = []
    began = loop.time()

    def note(name: str) -> None:
        expired.append((name, loop.time() - began))

    long.add(lambda: note("long"))
    await asyncio.sleep(1.0)
    short.add(lambda: note("short"))
    await asyncio.sleep(5.0)
    assert [name for name, _ in expired] == ["short", "long"]
    for (_, at), due in zip(expired, (1.1, 5.0), strict=True):
        assert due <= at <= due + TICK_SECONDS + 0.001


@pytest.mark.looptime
async def test_a_burst_shares_one_wake_up() -> None:
    """A thousand entries of one moment expire together."""
    wheel = Wheel(asyncio.get_running_loop())
    lane = wheel.lane(0.1)
    count = 0

    def expired() -> None:
        nonlocal count
        count += 1

    for _ in range(1000):
        lane.add(expired)
    await asyncio.sleep(0.09)
    assert count == 0
    await asyncio.sleep(0.03)
    assert count == 1000
    assert len(lane) == 0


@pytest.mark.looptime
async def test_nothing_expires_after_close() -> None:
    """A closed wheel calls nobody."""
    wheel = Wheel(asyncio.get_running_loop())
    expired: list[int] = []
    wheel.lane(0.1).add(lambda: expired.append(1))
    wheel.close()
    await asyncio.sleep(1.0)
    assert expired == []

"""A task that must live and dies is never overlooked."""

import asyncio

import pytest

from fleet.supervisor import Supervisor

pytestmark = pytest.mark.looptime


async def _raise() -> None:
    await asyncio.sleep(1.0)
    raise RuntimeError("a fault of ours")


async def test_a_loop_that_raises_is_fatal_once(caplog: pytest.LogCaptureFixture) -> None:
    """The first death is told, with its name; the others only logged."""
    told: list[str] = []
    supervisor = Supervisor(told.append)
    supervisor.run(_raise(), "beats")
    supervisor.run(_raise(), "tick")
    await asyncio.sleep(2.0)
    assert len(told) == 1
    assert "beats" in told[0]
    assert supervisor.failed == told[0]
    assert len(caplog.records) == 2
    await supervisor.close()


async def test_a_loop_that_just_ends_is_fatal_and_work_that_ends_is_not() -> None:
    """A loop has no good end."""
    told: list[str] = []
    supervisor = Supervisor(told.append)
    supervisor.spawn(asyncio.sleep(1.0), "work")
    await asyncio.sleep(2.0)
    assert told == []
    supervisor.run(asyncio.sleep(1.0), "loop")
    await asyncio.sleep(2.0)
    assert len(told) == 1
    await supervisor.close()


async def test_work_that_raises_is_fatal() -> None:
    """Nobody awaits it: it must not vanish."""
    told: list[str] = []
    supervisor = Supervisor(told.append)
    supervisor.spawn(_raise(), "first scrape")
    await asyncio.sleep(2.0)
    assert len(told) == 1
    await supervisor.close()


async def test_close_ends_everything_and_tells_nobody() -> None:
    """The end of the process is no fault."""
    told: list[str] = []
    supervisor = Supervisor(told.append)
    task = supervisor.run(asyncio.sleep(1000.0), "loop")
    await supervisor.close()
    assert task.cancelled()
    assert told == []

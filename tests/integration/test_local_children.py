"""Processes of a local fleet: how they start, how their deaths are told, how they end."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from fleet.local.children import Child, ChildFailed, Children, Spec, failure, last_lines

DEADLINE = 10.0
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
FOREVER = "time.sleep(1000)"


def _python(name: str, code: str, **more: signal.Signals) -> Spec:
    return Spec(name, "worker", (sys.executable, "-I", "-S", "-c", code), **more)


class _Deaths:
    """Remembers who died unasked."""

    def __init__(self, logs: Path) -> None:
        self.names: list[str] = []
        self.any = asyncio.Event()
        self.children = Children(logs, {**os.environ, "GREETING": "hello"}, self._died)

    def _died(self, child: Child) -> None:
        self.names.append(child.name)
        self.any.set()


async def _until_log(child: Child, text: str) -> None:
    async with asyncio.timeout(DEADLINE):
        while text not in child.log.read_text():
            await asyncio.sleep(0.01)


async def test_output_goes_to_the_log_and_death_is_told(tmp_path: Path) -> None:
    """Environment handed in; exit code and last lines are there for people."""
    deaths = _Deaths(tmp_path)
    code = "import os, sys; print(os.environ['GREETING'], flush=True); sys.exit('no good')"
    child = await deaths.children.start(_python("w", code))
    async with asyncio.timeout(DEADLINE):
        await deaths.any.wait()
    assert deaths.names == ["w"]
    assert not child.alive
    assert child.how_it_ended() == "exit code 1"
    assert failure(child).splitlines() == [
        "w ended (exit code 1); its log ends with:",
        "    hello",
        "    no good",
    ]
    assert deaths.children.living("worker") == []


async def test_the_launcher_becomes_the_program(tmp_path: Path) -> None:
    """The pid is the program's own, in a session of its own, with the kernel's death signal set."""
    deaths = _Deaths(tmp_path)
    code = (
        "import ctypes, os; n = ctypes.c_int(); "
        "ctypes.CDLL(None).prctl(2, ctypes.byref(n)); "
        "print(os.getpid(), os.getsid(0), n.value, flush=True); import time; time.sleep(1000)"
    )
    child = await deaths.children.start(_python("w", code))
    await _until_log(child, "\n")
    assert child.log.read_text().split() == [str(child.pid), str(child.pid), "9"]
    await deaths.children.close([("worker", 1.0)])
    assert deaths.names == []


async def test_a_stubborn_child_is_killed_after_its_grace(tmp_path: Path) -> None:
    """It ignores SIGTERM; the one beside it does not; both are gone, and neither is news."""
    deaths = _Deaths(tmp_path)
    stubborn = await deaths.children.start(_python("stubborn", STUBBORN + FOREVER))
    docile = await deaths.children.start(_python("docile", "import time; " + FOREVER))
    await _until_log(stubborn, "up")
    async with asyncio.timeout(DEADLINE):
        await deaths.children.stop([stubborn, docile], 0.1)
    assert (stubborn.how_it_ended(), docile.how_it_ended()) == ("SIGKILL", "SIGTERM")
    assert deaths.names == []


async def test_a_child_may_have_a_stop_signal_of_its_own(tmp_path: Path) -> None:
    """Workers get SIGINT, which ends them without a drain."""
    deaths = _Deaths(tmp_path)
    code = "import signal, time; signal.signal(2, signal.SIG_DFL); print('up', flush=True); "
    spec = _python("w", code + FOREVER, stop_signal=signal.SIGINT)
    child = await deaths.children.start(spec)
    await _until_log(child, "up")
    await deaths.children.close([("worker", 5.0)])
    assert child.how_it_ended() == "SIGINT"


async def test_a_cancelled_start_loses_no_process(tmp_path: Path) -> None:
    """A stop in the very moment of a start: the process is known and ended with the others."""
    deaths = _Deaths(tmp_path)
    spec = _python("w", "import time; " + FOREVER)
    starting = asyncio.create_task(deaths.children.start(spec))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    child = deaths.children.get("w")
    assert child.alive
    await deaths.children.close([("worker", 5.0)])
    assert not child.alive


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    """The launcher says so in the log; a log that cannot be written is an error at once."""
    deaths = _Deaths(tmp_path)
    child = await deaths.children.start(Spec("w", "worker", ("/no/such/program",)))
    async with asyncio.timeout(DEADLINE):
        await deaths.any.wait()
    assert "/no/such/program: No such file" in last_lines(child.log, 1)[0]
    gone = Children(tmp_path / "gone", {}, lambda dead: None)
    with pytest.raises(ChildFailed):
        await gone.start(_python("w", "pass"))

"""`epp-fleet local` as a process of its own, for tests: started, watched, and always ended."""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

START_SECONDS = 90.0
STOP_SECONDS = 12.0
MARK = "LOCAL_TEST_MARK"


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return once `condition` holds; fails the test after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


class LocalProcess:
    """One run of the command with a home, a runtime folder and an output file of its own.

    Args:
        runtime: shared with another run; None = the home.
    """

    def __init__(
        self,
        home: Path,
        arguments: Sequence[str],
        *,
        command: str = "local",
        runtime: Path | None = None,
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        runtime = runtime or home
        self.home = home
        self.state_file = runtime / "epp-fleet" / "state.json"
        self._mark = secrets.token_hex(16)
        environ = {n: v for n, v in os.environ.items() if not n.startswith("EPP_FLEET_")}
        self.environ = {
            **environ,
            "HOME": str(home),
            "XDG_RUNTIME_DIR": str(runtime),
            MARK: self._mark,
        }
        self._output = home / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fleet.cli", command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environ,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """All that it has printed."""
        return self._output.read_text(errors="replace")

    def family(self) -> set[int]:
        """Living processes that inherited our mark, the command itself included."""
        found = set()
        wanted = f"{MARK}={self._mark}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
        return found

    def wait_ready(self) -> dict[str, Any]:
        """The state file, once `ready` is printed."""

        def ready() -> bool:
            assert self.process.poll() is None, f"it ended:\n{self.output}"
            return "ready" in self.output.splitlines()

        wait_for(ready, START_SECONDS, f"ready; so far:\n{self.output}")
        state = json.loads(self.state_file.read_text())
        assert isinstance(state, dict)
        return state

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit code."""
        return self.process.wait(seconds)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop; its exit code."""
        self.process.send_signal(number)
        return self.wait()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Another command for the same fleet."""
        return subprocess.run(
            [sys.executable, "-m", "fleet.cli", *arguments],
            env={name: value for name, value in self.environ.items() if name != MARK},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def end(self) -> None:
        """Kill whatever is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(STOP_SECONDS)
        for pid in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def local_process(
    home: Path, *arguments: str, command: str = "local", runtime: Path | None = None
) -> Iterator[LocalProcess]:
    """A run for the length of a `with` block."""
    made = LocalProcess(home, arguments, command=command, runtime=runtime)
    try:
        yield made
    finally:
        made.end()

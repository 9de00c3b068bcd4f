"""Real coordinator processes for tests: started, watched through HTTP, killed and stopped.

with CoordinatorProcess(folder, "coordinator-0", redis_url, manifests=..., eds=...) as process:
    process.wait_ready()
    process.get("/api/v1/map")
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from tests.ports import free_port

TOKEN = "test-token"
READY_SECONDS = 15.0

T = TypeVar("T")


def wait_for(condition: Callable[[], T], *, seconds: float = 30.0, what: str = "condition") -> T:
    """Wait for a real condition; returns its first true value.

    Raises:
        AssertionError: it did not come true in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.01)


class CoordinatorProcess:
    """One `python -m coordinator`, in a process group of its own; its log is kept.

    Attributes:
        process: the running process, or None.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        redis_url: str,
        *,
        manifests: Path,
        eds: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Args:
        folder: where token and log go.
        environment: further `EPP_FLEET_*` settings.
        """
        self.name = name
        self.http_port = free_port()
        self.internal_port = free_port()
        self.log_path = folder / f"{name}.log"
        token = folder / "token"
        token.write_text(TOKEN)
        self._environment = {
            **os.environ,
            "EPP_FLEET_REDIS__URL": redis_url,
            "EPP_FLEET_SOURCE__MANIFESTS": str(manifests),
            "EPP_FLEET_ROUTES__EDS_DIRECTORY": str(eds),
            "EPP_FLEET_SECURITY__TOKEN_FILE": str(token),
            **(environment or {}),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "CoordinatorProcess":
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    @property
    def command(self) -> list[str]:
        """The command line."""
        ports = ["--http-port", str(self.http_port), "--internal-port", str(self.internal_port)]
        return [
            *(sys.executable, "-m", "coordinator", "--id", self.name, "--host", "127.0.0.1"),
            *ports,
        ]

    def start(self) -> "CoordinatorProcess":
        """Start; does not wait for anything."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        assert self.process is not None, f"{self.name} does not run"
        self.process.send_signal(number)

    def kill(self) -> None:
        """As kill -9, and wait until it is gone."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)

    def terminate(self, *, seconds: float = 20.0) -> int:
        """SIGTERM, and its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(seconds=seconds)

    def wait(self, *, seconds: float = 10.0) -> int:
        """Wait until it ends by itself; its exit code."""
        assert self.process is not None, f"{self.name} does not run"
        code = self.process.wait(seconds)
        self.process = None
        return code

    @property
    def log(self) -> str:
        """Everything that it said."""
        return self.log_path.read_text(errors="replace")

    def get(self, path: str) -> Any:
        """The JSON document at `path`, or None if it is not answered with 200 at present."""
        url = f"http://127.0.0.1:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError, json.JSONDecodeError):
            return None

    def text(self, path: str) -> str:
        """The text at `path`, or an empty one."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}{path}", timeout=2
            ) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def post(self, path: str, *, token: str = TOKEN) -> int:
        """Send a command; the status code, or 0 if nothing answers."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}{path}",
            method="POST",
            headers={"Authorization": f"Bearer {token}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def status(self, path: str) -> int:
        """The status code at `path`; 0 if nothing answers."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}{path}", timeout=2
            ) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def wait_ready(self, *, seconds: float = READY_SECONDS) -> None:
        """Wait until /readyz says so."""
        wait_for(lambda: self.status("/readyz") == 200, seconds=seconds, what=f"{self.name} ready")

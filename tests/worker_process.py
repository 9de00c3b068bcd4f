"""A real worker process for tests: started, watched with bounded waits, and never left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from urllib.error import URLError
from urllib.request import urlopen

from tests.ports import free_port

START_SECONDS = 20.0
STOP_SECONDS = 20.0
TOKEN = "the-fleets-token"
_PORTS = ("ext_proc", "health", "internal", "http")


class WorkerProcess:
    """`python -m epp_worker` on loopback ports of its own.

    Args:
        folder: for its settings, token and log; the manifests are in `folder/manifests` unless
            `manifests` says otherwise.
        redis_url: where its store is, or would be.
        settings: `section: {field: value}` on top of what it needs to run.
    """

    def __init__(
        self,
        folder: Path,
        *,
        redis_url: str = "redis://127.0.0.1:1/0",
        worker_id: str = "worker-0",
        manifests: Path | None = None,
        settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self.id = worker_id
        self.ports = {name: free_port() for name in _PORTS}
        self.manifests = manifests or folder / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self._token = folder / "token"
        self._token.write_text(TOKEN)
        self._config = folder / f"{worker_id}.json"
        self._log = folder / f"{worker_id}.log"
        values: dict[str, dict[str, object]] = {
            "redis": {"url": redis_url},
            "source": {"manifests": str(self.manifests), "poll_seconds": 0.05},
            "security": {"token_file": str(self._token)},
            "worker": {"host": "127.0.0.1"},
        }
        for section, fields in (settings or {}).items():
            values.setdefault(section, {}).update(fields)
        self._config.write_text(json.dumps(values))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "WorkerProcess":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def address(self, port: str) -> str:
        """`host:port` of `ext_proc`, `health`, `internal` or `http`."""
        return f"127.0.0.1:{self.ports[port]}"

    def start(self) -> None:
        """Start the program; does not wait for anything."""
        command = [sys.executable, "-m", "epp_worker", "--id", self.id]
        command += ["--config", str(self._config)]
        for name, port in self.ports.items():
            command += [f"--{name.replace('_', '-')}-port", str(port)]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EPP_FLEET_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=Path(__file__).parents[1]
            )

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The running process."""
        assert self._process is not None, "not started"
        return self._process

    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one HTTP answer; status 0 = not listening."""
        try:
            with urlopen(f"http://{self.address('http')}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except URLError as error:
            code = getattr(error, "code", 0)
            return code, getattr(error, "reason", "") if not code else ""

    def wait_up(self) -> None:
        """Wait until it has said that it is up."""
        self.wait_said("worker up")

    def wait_said(self, text: str) -> None:
        """Wait until its log contains `text`."""
        deadline = time.monotonic() + START_SECONDS
        while text not in self.log():
            assert self.process.poll() is None, f"exited {self.process.returncode}:\n{self.log()}"
            assert time.monotonic() < deadline, f"never said {text!r}:\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Its exit code; raises if it does not end in time."""
        return self.process.wait(seconds)

    def kill(self) -> None:
        """End it whatever it does; safe to repeat."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

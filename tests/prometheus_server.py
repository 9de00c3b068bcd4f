"""A real Prometheus for tests, from the distribution's package: started, asked, always ended.

Its first scrape comes some 6 s after its start, whatever the interval: wait for `up`.
"""

import json
import math
import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.ports import free_port

START_SECONDS = 30.0
STOP_SECONDS = 10.0
SCRAPE_SECONDS = 1


class NoPrometheus(Exception):
    """It is not on this machine; the message says what to install."""


def program(name: str = "prometheus") -> str:
    """Where `prometheus` or `promtool` is.

    Raises:
        NoPrometheus: nowhere.
    """
    found = shutil.which(name)
    if found is None:
        raise NoPrometheus(f"no {name} on the PATH: `make tools`, or install the package")
    return found


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a result.

    Attributes:
        points: Unix time and value; of an instant query, one.
    """

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def finite(self) -> tuple[float, ...]:
        """Values that can be drawn."""
        return tuple(value for _, value in self.points if math.isfinite(value))


class Refused(AssertionError):
    """It could not answer a query; the message is its own."""


class Prometheus:
    """One server that scrapes once a second.

    Args:
        targets: labels by address (`host:port`); labels as a service discovery has them, too.
        job: further fields of the scrape job.
    """

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Mapping[str, str]],
        job: Mapping[str, Any] | None = None,
    ) -> None:
        self._folder = folder
        self._targets = targets
        self._job = dict(job or {})
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Prometheus":
        self._folder.mkdir(parents=True, exist_ok=True)
        config = self._folder / "prometheus.json"
        job = {
            "job_name": "tests",
            **self._job,
            "scrape_interval": f"{SCRAPE_SECONDS}s",
            "static_configs": [
                {"targets": [address], "labels": dict(labels)}
                for address, labels in self._targets.items()
            ],
        }
        config.write_text(json.dumps({"scrape_configs": [job]}))
        command = [
            program(),
            f"--config.file={config}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self._ready():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < deadline, "Prometheus is not ready"
            time.sleep(0.05)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait(STOP_SECONDS)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=2):
                return True
        except OSError:
            return False

    def _ask(self, path: str, parameters: Sequence[tuple[str, str]]) -> Any:
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(f"{parameters}: {error.read().decode()}") from None

    def instant(self, expr: str, at: float | None = None) -> list[Series]:
        """The result of now, or of a moment (Unix time)."""
        moment = () if at is None else (("time", str(at)),)
        data = self._ask("query", [("query", expr), *moment])
        return [_series(each, [each["value"]]) for each in data["result"]]

    def over(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """The result from `start` to `end`, every `step` seconds."""
        spelled = [("start", str(start)), ("end", str(end)), ("step", str(step))]
        data = self._ask("query_range", [("query", expr), *spelled])
        return [_series(each, each["values"]) for each in data["result"]]

    def values_of(self, label: str, selector: str, start: float, end: float) -> list[str]:
        """Values of a label of the series that are selected, in order."""
        spelled = [("match[]", selector), ("start", str(start)), ("end", str(end))]
        return sorted(self._ask(f"label/{label}/values", spelled))

    def wait(self, expr: str, seconds: float = 30.0) -> None:
        """Until the instant query has a result, as with `... > 0`.

        Raises:
            AssertionError: it has none in time.
        """
        deadline = time.monotonic() + seconds
        while not self.instant(expr):
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {expr}"
            time.sleep(0.1)


def _series(raw: Any, points: Any) -> Series:
    return Series(raw["metric"], tuple((float(at), float(value)) for at, value in points))

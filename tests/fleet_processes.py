"""Real coordinators and workers as processes around a real Valkey, without a gateway.

For tests that stop, kill and restart single processes. Every wait is bounded.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.local.ports import Ports
from tests import manifest_texts
from tests.valkey import Valkey

Json = dict[str, Any]

READY_SECONDS = 30.0
TOKEN = "a-token-for-tests"


def pod_address(number: int) -> str:
    """The address of a pool's only pod."""
    return f"127.0.{(100 + number) // 256}.{(100 + number) % 256}"


def until(what: str, condition: Callable[[], bool], seconds: float = READY_SECONDS) -> float:
    """Poll until `condition` holds; returns the seconds that it took.

    Raises:
        AssertionError: it did not hold in time.
    """
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - start


@dataclass(slots=True)
class Child:
    """One process of the fleet.

    Attributes:
        ports: by flag name (`http`, `internal`, ...).
    """

    name: str
    process: subprocess.Popen[bytes]
    ports: dict[str, int]
    log: Path

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and reap."""
        self.process.kill()
        self.process.wait(10)

    def stopped(self) -> bool:
        """Whether the process is in the state that SIGSTOP leaves it in."""
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "T"

    def get(self, path: str) -> Json:
        """GET a JSON document of its HTTP port."""
        url = f"http://127.0.0.1:{self.ports['http']}{path}"
        with urllib.request.urlopen(url, timeout=2) as response:
            document: Json = json.load(response)
            return document


@dataclass(slots=True)
class Fleet:
    """A folder, a Valkey, and whatever was started.

    Attributes:
        environment: by module: variables that its processes get on top of the test's own.
    """

    folder: Path
    valkey: Valkey
    free: Ports
    children: list[Child] = field(default_factory=list)
    environment: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def eds(self) -> Path:
        """Where the leader writes the routes."""
        return self.folder / "eds"

    def prepare(self, pools: int = 3, **settings: Json) -> None:
        """Write manifests of `pools` pools with one pod each, and the settings file."""
        manifests = self.folder / "manifests"
        manifests.mkdir()
        objects = []
        for number in range(pools):
            name = f"pool-{number}"
            objects.append(manifest_texts.pool(name))
            objects.append(
                manifest_texts.pod(f"pod-{number}", labels={"app": name}, ip=pod_address(number))
            )
        (manifests / "all.yaml").write_text(manifest_texts.text(*objects))
        token = self.folder / "token"
        token.write_text(TOKEN)
        config: Json = {
            "fleet": "tests",
            "redis": {"url": self.valkey.url},
            "source": {"manifests": str(manifests)},
            "routes": {"eds_directory": str(self.eds)},
            "security": {"token_file": str(token)},
            **settings,
        }
        (self.folder / "settings.yaml").write_text(json.dumps(config))

    def start(
        self,
        module: str,
        name: str,
        ports: Sequence[str],
        *,
        before: Sequence[str] = (),
        same_ports_as: Child | None = None,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start `python -m module` with free ports, or with those of an earlier child.

        Args:
            host: a loopback address to listen on.
            environment: variables on top of all others.
        """
        fresh = {} if same_ports_as else {port: self.free.take() for port in ports}
        chosen = same_ports_as.ports if same_ports_as else fresh
        command = [sys.executable, "-m", module, *before, "--id", name, "--host", host]
        command += ["--config", str(self.folder / "settings.yaml")]
        for port, number in chosen.items():
            command += [f"--{port}-port", str(number)]
        log = self.folder / f"{name}.{len(self.children)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self.environment.get(module, {}), **(environment or {})},
            )
        child = Child(name, process, dict(chosen), log)
        self.children.append(child)
        return child

    def coordinator(
        self, name: str, *, module: str = "coordinator", before: Sequence[str] = ()
    ) -> Child:
        """Start a coordinator."""
        return self.start(module, name, ("http", "internal"), before=before)

    def worker(
        self,
        name: str,
        *,
        same_ports_as: Child | None = None,
        host: str = "127.0.0.1",
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a worker."""
        return self.start(
            "epp_worker",
            name,
            ("ext-proc", "health", "internal", "http"),
            same_ports_as=same_ports_as,
            host=host,
            environment=environment,
        )

    def map(self, coordinator: Child) -> Json | None:
        """The map as `coordinator` shows it, or None while it cannot."""
        with contextlib.suppress(urllib.error.URLError, OSError):
            return coordinator.get("/api/v1/map")
        return None

    def owned(self, coordinator: Child, workers: set[str], pools: int = 3) -> bool:
        """Whether every pool is owned, and exactly `workers` own something."""
        shown = self.map(coordinator)
        if shown is None or len(shown["pools"]) != pools:
            return False
        if any(pool["phase"] != "owned" for pool in shown["pools"]):
            return False
        return {owner for pool in shown["pools"] for owner in pool["owners"]} == workers

    def routes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Each route file: its epoch.version and the ports it names."""
        found = {}
        for path in sorted(self.eds.glob("*.json")):
            document = json.loads(path.read_text())
            ports = tuple(
                endpoint["endpoint"]["address"]["socket_address"]["port_value"]
                for resource in document["resources"]
                for locality in resource.get("endpoints", [])
                for endpoint in locality.get("lb_endpoints", [])
            )
            found[path.name] = (document["version_info"], ports)
        return found

    def logs(self) -> str:
        """The end of every child's log, for a failed assertion."""
        return "\n".join(
            f"--- {child.log.name}\n{child.log.read_text(errors='replace')[-3000:]}"
            for child in self.children
        )

    def close(self) -> None:
        """Kill everything that still runs."""
        for child in self.children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.process.pid, signal.SIGKILL)
            child.process.wait(10)
        self.valkey.close()
        self.free.close()


@contextlib.contextmanager
def running_fleet(folder: Path, valkey: Valkey | None = None) -> Iterator[Fleet]:
    """A Valkey and an empty fleet for the length of a `with` block; logs are shown on failure."""
    fleet = Fleet(folder, valkey or Valkey(), Ports(random.SystemRandom()))
    try:
        fleet.valkey.start()
        try:
            yield fleet
        except BaseException:
            sys.stderr.write(fleet.logs())
            raise
    finally:
        fleet.close()

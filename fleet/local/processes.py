"""The command lines of a local fleet's processes."""

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleet.local.children import Child, Spec, last_lines
from fleet.local.plan import LOOPBACK, RunFolder
from fleet.local.state import CoordinatorState, WorkerState

PYTHON = (sys.executable, "-P", "-m")
STOP_ORDER = (
    ("gateway", 1.0),
    ("worker", 3.0),
    ("coordinator", 2.0),
    ("models", 1.5),
    ("redis", 1.0),
)
"""Kinds in the order of their end, each with its grace in seconds; the sum is below 10 s."""

TAKEN = ("address already in use", "address in use", "errno 98", "eaddrinuse")
TakePort = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Process:
    """A program and the addresses it was given."""

    spec: Spec
    addresses: dict[str, str]


def worker(number: int, folder: RunFolder, take: TakePort) -> Process:
    """`worker-<number>` on four free ports."""
    name = f"worker-{number}"
    ports = {key: take() for key in ("ext_proc", "health", "internal", "http")}
    flags = [("--" + key.replace("_", "-") + "-port", str(port)) for key, port in ports.items()]
    command = (
        *(*PYTHON, "epp_worker", "--id", name, "--config", str(folder.settings)),
        *("--host", LOOPBACK),
        *(part for flag in flags for part in flag),
    )
    addresses = {key: f"{LOOPBACK}:{port}" for key, port in ports.items()}
    # SIGINT: end now. SIGTERM would drain first, which takes its time.
    return Process(Spec(name, "worker", command, signal.SIGINT), addresses)


def coordinator(number: int, folder: RunFolder, take: TakePort) -> Process:
    """`coordinator-<number>` on two free ports."""
    name = f"coordinator-{number}"
    http, internal = take(), take()
    command = (
        *(*PYTHON, "coordinator", "--id", name, "--config", str(folder.settings)),
        *("--host", LOOPBACK, "--http-port", str(http), "--internal-port", str(internal)),
    )
    return Process(Spec(name, "coordinator", command), {"http": f"{LOOPBACK}:{http}"})


def valkey(binary: Path, port: int, folder: RunFolder) -> Spec:
    """The bundled store; nothing is kept on disk, so a restart is a restart empty."""
    command = (
        *(str(binary), "--port", str(port), "--bind", LOOPBACK),
        *("--save", "", "--appendonly", "no", "--dir", str(folder.root)),
    )
    return Spec("valkey", "redis", command)


def models(folder: RunFolder) -> Spec:
    """The simulated servers of the sample."""
    command = (*PYTHON, "fleet.local.model_server", "--config", str(folder.models))
    return Spec("models", "models", command)


def says_port_taken(child: Child) -> bool:
    """Whether its log ends with a complaint about a port in use."""
    text = "\n".join(last_lines(child.log, 30)).lower()
    return any(words in text for words in TAKEN)


def worker_state(process: Process, pid: int) -> WorkerState:
    """The state file's entry of a worker."""
    return WorkerState(id=process.spec.name, pid=pid, **process.addresses)


def coordinator_state(process: Process, pid: int) -> CoordinatorState:
    """The state file's entry of a coordinator."""
    return CoordinatorState(id=process.spec.name, http=process.addresses["http"], pid=pid)

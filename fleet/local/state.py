"""The state file: where the processes of a local fleet are, for the other commands."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from fleet.errors import FleetError, FormatError
from fleet.local import locks
from fleet.local.atomic import write_atomic

FORMAT = 1


class Taken(FleetError):
    """A living fleet uses this state file."""


class CoordinatorState(msgspec.Struct, frozen=True):
    """One coordinator; the address is `host:port`."""

    id: str
    http: str
    pid: int


class WorkerState(msgspec.Struct, frozen=True):
    """One worker; addresses are `host:port`."""

    id: str
    ext_proc: str
    health: str
    internal: str
    http: str
    pid: int


class FleetState(msgspec.Struct, frozen=True):
    """The whole file, written once, when the fleet is ready.

    Attributes:
        redis: URL of the store.
        gateway: `host:port`, or None without one.
        folder: the run folder; gone when the fleet is.
        manifests: the folder that the fleet follows.
    """

    fleet: str
    redis: str
    gateway: str | None
    token_file: str
    folder: str
    coordinators: tuple[CoordinatorState, ...]
    workers: tuple[WorkerState, ...]
    manifests: str
    format: int = FORMAT


def default_path(environ: Mapping[str, str]) -> Path:
    """`$XDG_RUNTIME_DIR/epp-fleet/state.json`, else `~/.cache/epp-fleet/state.json`."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    if runtime and Path(runtime).is_dir():
        return Path(runtime) / "epp-fleet" / "state.json"
    return Path(environ.get("HOME") or "~").expanduser() / ".cache" / "epp-fleet" / "state.json"


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[None]:
    """The file is ours alone for the length of a `with` block; nothing is written to it.

    Raises:
        Taken: a living fleet has claimed it.
        OSError: its folder cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = locks.take(path.with_name(f".{path.name}.lock"))
    if lock is None:
        raise Taken(f"{path} belongs to a fleet that is running")
    try:
        yield
    finally:
        lock.release()


def write_state(path: Path, state: FleetState) -> None:
    """Write the file, for the owner only.

    Raises:
        OSError: it cannot be written.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = msgspec.json.format(msgspec.json.encode(state), indent=2).decode()
    write_atomic(path, text + "\n", mode=0o600)


def read_state(path: Path) -> FleetState | None:
    """The state, or None if there is no such file.

    Raises:
        FormatError: it is there, but cannot be used; names the file and why.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FormatError(f"{path}: {error.strerror}") from error
    try:
        state = msgspec.json.decode(raw, type=FleetState)
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path} is no state file: {error}") from error
    if state.format > FORMAT + 1:
        raise FormatError(f"{path} has format {state.format}; this version knows {FORMAT}")
    return state


def remove_state(path: Path, folder: Path) -> None:
    """Remove the file if it still is the one of the fleet in `folder`."""
    try:
        state = read_state(path)
        if state is not None and Path(state.folder).samefile(folder):
            path.unlink(missing_ok=True)
    except (FormatError, OSError):
        return

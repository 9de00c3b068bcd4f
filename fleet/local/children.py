"""The processes of a local fleet: started so that none outlives us, watched, and stopped in order.

Every child runs in a session of its own (Ctrl-C reaches only the command itself) and is killed by
the kernel if the command dies (`fleet.local.launch`). No child is ever restarted: a death is
reported, and what it means is decided by whoever listens.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import FleetError

LAUNCHER = Path(__file__).with_name("launch.py")
TAIL_BYTES = 16_384


class ChildFailed(FleetError):
    """A child ended before it was ready; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One program to run.

    Attributes:
        name: unique; names the log file too.
        kind: `worker`, `coordinator`, `gateway`, `models` or `redis`.
        command: absolute program path and arguments.
        stop_signal: what ends it soon and cleanly.
    """

    name: str
    kind: str
    command: tuple[str, ...]
    stop_signal: signal.Signals = signal.SIGTERM


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-count:]


class Child:
    """One running (or ended) program.

    Attributes:
        log: file with its standard output and error.
        ended: set once it is gone.
        expected: it was told to stop, or killed on purpose; its end is no news.
    """

    def __init__(self, spec: Spec, log: Path, process: asyncio.subprocess.Process) -> None:
        self.spec = spec
        self.log = log
        self.ended = asyncio.Event()
        self.expected = False
        self._process = process

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.spec.name

    @property
    def pid(self) -> int:
        """Its process id; the launcher becomes the program, so this is the program's own."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not been seen to end."""
        return not self.ended.is_set()

    def how_it_ended(self) -> str:
        """`exit code 2` or `SIGKILL`, for people."""
        code = self._process.returncode
        if code is None:
            return "still running"
        if code >= 0:
            return f"exit code {code}"
        try:
            return signal.Signals(-code).name
        except ValueError:
            return f"signal {-code}"

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if it is gone."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def wait(self) -> None:
        """Return when it is gone."""
        await self._process.wait()
        self.ended.set()


class Children:
    """All processes of one fleet.

    Args:
        logs: folder for their output.
        environ: what they see as environment.
        on_death: called with each child that ended without being told to.
    """

    def __init__(
        self, logs: Path, environ: Mapping[str, str], on_death: Callable[[Child], None]
    ) -> None:
        self._logs = logs
        self._environ = dict(environ)
        self._on_death = on_death
        self._children: dict[str, Child] = {}
        self._watchers: set[asyncio.Task[None]] = set()
        self._closing = False

    def of(self, kind: str) -> list[Child]:
        """Children of a kind, dead ones included, in the order of their start."""
        return [child for child in self._children.values() if child.spec.kind == kind]

    def living(self, kind: str) -> list[Child]:
        """Children of a kind that live."""
        return [child for child in self.of(kind) if child.alive]

    def get(self, name: str) -> Child:
        """The latest child of that name."""
        return self._children[name]

    async def start(self, spec: Spec) -> Child:
        """Start one program; its log is appended to.

        Raises:
            ChildFailed: it could not be started at all.
        """
        log = self._logs / f"{spec.name}.log"
        spawning = asyncio.ensure_future(self._spawn(spec, log))
        # A stop in this very moment must not lose sight of a process that already runs.
        cancelled = False
        while not spawning.done():
            try:
                await asyncio.wait({spawning})
            except asyncio.CancelledError:
                cancelled = True
        try:
            child = Child(spec, log, spawning.result())
        except OSError as error:
            raise ChildFailed(f"{spec.name} could not be started: {error}") from error
        self._children[spec.name] = child
        watcher = asyncio.create_task(self._watch(child), name=f"watch {spec.name}")
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        if cancelled:
            raise asyncio.CancelledError
        return child

    async def _spawn(self, spec: Spec, log: Path) -> asyncio.subprocess.Process:
        launch = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()), *spec.command)
        # The child gets its own copy of the descriptor; ours is closed when the block ends.
        with log.open("ab") as output:
            return await asyncio.create_subprocess_exec(
                *launch,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environ,
                start_new_session=True,
            )

    async def _watch(self, child: Child) -> None:
        await child.wait()
        if not (child.expected or self._closing):
            self._on_death(child)

    async def kill(self, child: Child) -> None:
        """SIGKILL, on purpose; returns when it is gone."""
        child.expected = True
        child.send(signal.SIGKILL)
        await child.ended.wait()

    async def stop(self, children: Sequence[Child], grace_seconds: float) -> None:
        """Ask each to end by its own signal; whoever still lives after the grace is killed."""
        living = [child for child in children if child.alive]
        for child in living:
            child.expected = True
            child.send(child.spec.stop_signal)
        if not living:
            return
        waits = [asyncio.ensure_future(child.ended.wait()) for child in living]
        await asyncio.wait(waits, timeout=grace_seconds)
        for child in living:
            child.send(signal.SIGKILL)
        await asyncio.gather(*waits)

    async def close(self, order: Sequence[tuple[str, float]]) -> None:
        """Stop everything, kind by kind with each one's grace in seconds, and wait for the end."""
        self._closing = True
        for kind, grace in order:
            await self.stop(self.living(kind), grace)
        await self.stop([child for child in self._children.values() if child.alive], 0.0)
        if self._watchers:
            await asyncio.gather(*self._watchers, return_exceptions=True)


def failure(child: Child, *, lines: int = 12) -> str:
    """How a child ended and the end of its log, for people."""
    text = f"{child.name} ended ({child.how_it_ended()}); its log ends with:"
    tail = last_lines(child.log, lines) or ["(nothing)"]
    return "\n".join([text, *(f"    {line}" for line in tail)])

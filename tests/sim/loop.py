"""Virtual time: one queue of callbacks for the whole world, one event loop face per process.

No thread, no socket, no real clock. Everything that happens is a callback at a moment; of one
moment, in the order in which it was asked for. A process is paused by keeping its callbacks back
(its clock goes on), and killed by dropping them: its tasks stop where they are, as after kill -9.

Whoever wants the same run again needs the same seed and the same PYTHONHASHSEED: tasks hash by
number, strings in sets do not.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any

Callback = Callable[..., object]


class Handle:
    """One callback to come; what asyncio's handles are used for here."""

    __slots__ = ("args", "callback", "gone", "process", "when_")

    def __init__(
        self, process: "Process", callback: Callback, args: tuple[Any, ...], when: float
    ) -> None:
        self.process = process
        self.callback = callback
        self.args = args
        self.when_ = when
        self.gone = False

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        """By the clock of its process."""
        return self.when_ + self.process.offset


class Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(
        self, coro: Coroutine[Any, Any, Any], *, loop: "ProcessLoop", name: str | None = None
    ) -> None:
        self.number = loop.process.world.number()
        untyped: Any = loop
        super().__init__(coro, loop=untyped, name=name)

    def __hash__(self) -> int:
        return self.number


class State(Enum):
    """What becomes of a process' callbacks."""

    RUNNING = auto()
    PAUSED = auto()
    DEAD = auto()


class Process:
    """One life of one process.

    Attributes:
        offset: its monotonic clock is this much ahead of the world's: only differences may count.
        skew: its wall clock, likewise.
        died, resumed: when, in world time.
    """

    def __init__(self, world: "World", name: str, offset: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.offset = offset
        self.skew = 0.0
        self.state = State.RUNNING
        self.died: float | None = None
        self.resumed = float("-inf")
        self.loop = ProcessLoop(self)
        self.failures: list[str] = []
        self._kept: list[Handle] = []

    @property
    def alive(self) -> bool:
        return self.state is not State.DEAD

    @property
    def running(self) -> bool:
        return self.state is State.RUNNING

    def keep(self, handle: Handle) -> None:
        """It is due and may not run now."""
        if self.state is State.PAUSED:
            self._kept.append(handle)

    def pause(self) -> None:
        if self.state is State.RUNNING:
            self.state = State.PAUSED

    def resume(self) -> None:
        if self.state is State.PAUSED:
            self.state = State.RUNNING
            self.resumed = self.world.now
            self.world.ready.extend(self._kept)
            self._kept = []

    def kill(self) -> None:
        if self.state is not State.DEAD:
            self.state = State.DEAD
            self.died = self.world.now
            self._kept = []

    def call(self, callback: Callback, *args: Any) -> None:
        """Have the process do this in its next turn."""
        self.world.ready.append(Handle(self, callback, args, self.world.now))

    def failed(self, what: str) -> None:
        """Something came to light that must never happen in a process that lives."""
        if self.alive:
            self.failures.append(what)
            self.world.complain(self, what)


class ProcessLoop:
    """What a process sees of the world's queue: as much of an event loop as asyncio asks for."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._world = process.world

    def time(self) -> float:
        return self._world.now + self.process.offset

    def call_soon(self, callback: Callback, *args: Any, context: Any = None) -> Handle:
        handle = Handle(self.process, callback, args, self._world.now)
        self._world.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callback, *args: Any, context: Any = None
    ) -> Handle:
        return self._world.at(self._world.now + delay, self.process, callback, *args)

    def call_at(self, when: float, callback: Callback, *args: Any, context: Any = None) -> Handle:
        return self._world.at(when - self.process.offset, self.process, callback, *args)

    def create_future(self) -> "asyncio.Future[Any]":
        untyped: Any = self
        return asyncio.Future(loop=untyped)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None
    ) -> Task:
        return Task(coro, loop=self, name=name)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self._world.over or "was destroyed" in str(context.get("message")):
            return
        self.process.failed(f"{context.get('message')}: {error!r}")


class World:
    """The queue and the clock.

    Attributes:
        now: seconds since the run began.
        over: the run is done; what the garbage collector ends from now on means nothing.
        steps: callbacks run.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.ready: deque[Handle] = deque()
        self.over = False
        self.steps = 0
        self.complaints: list[tuple[float, str, str]] = []
        self._heap: list[tuple[float, int, Handle]] = []
        self._number = 0
        self.outside = Process(self, "world")
        """Whoever is no process: kernels, cables, gateways, servers."""

    def number(self) -> int:
        """1, 2, 3, ..."""
        self._number += 1
        return self._number

    def at(self, when: float, process: Process, callback: Callback, *args: Any) -> Handle:
        handle = Handle(process, callback, args, max(when, self.now))
        self._number += 1
        heapq.heappush(self._heap, (handle.when_, self._number, handle))
        return handle

    def later(self, seconds: float, callback: Callback, *args: Any) -> Handle:
        """Outside of every process."""
        return self.at(self.now + seconds, self.outside, callback, *args)

    def complain(self, process: Process, what: str) -> None:
        self.complaints.append((self.now, process.name, what))

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Let everything happen up to a moment, or until `stop` says so between two moments."""
        ready, heap = self.ready, self._heap
        enter: Callable[[Any], None] = asyncio._set_running_loop
        inside: Process | None = None
        try:
            while True:
                if ready:
                    handle = ready.popleft()
                else:
                    if stop() or not heap or heap[0][0] > until:
                        break
                    self.now, _, handle = heapq.heappop(heap)
                if handle.gone:
                    continue
                process = handle.process
                if process.state is not State.RUNNING:
                    process.keep(handle)
                    continue
                self.steps += 1
                if process is not inside:
                    enter(process.loop)
                    inside = process
                try:
                    handle.callback(*handle.args)
                except Exception as error:
                    process.failed(f"callback {handle.callback!r} raised {error!r}")
        finally:
            enter(None)
        if not stop():
            self.now = max(self.now, until)


class ProcessClock:
    """`fleet.clock.Clock` of one process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._world = process.world

    def monotonic(self) -> float:
        return self._world.now + self._process.offset

    def wall(self) -> float:
        return 1_800_000_000.0 + self._world.now + self._process.skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class WorldClock:
    """`fleet.clock.Clock` of servers outside."""

    def __init__(self, world: World) -> None:
        self._world = world

    def monotonic(self) -> float:
        return self._world.now

    def wall(self) -> float:
        return 1_800_000_000.0 + self._world.now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("a server does not sleep")

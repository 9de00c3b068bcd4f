"""A worker in a process of its own that owns some pools, and tells how its loop fares.

    python -m tests.bench.attacked POOLS

Says one line of JSON when it is up, and one for each line that it is given.
"""

import asyncio
import gc
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from epp_worker.trimming import allocator
from fleet.model import Hold
from fleet.polling import FairSelector
from fleet.settings import BoundSettings, WorkerSettings
from tests.worker_inprocess import Running, TestLeader, running_worker, write_pool

_LOOK_SECONDS = 0.005
_KEPT = 65_536
SETTINGS = WorkerSettings(
    host="127.0.0.1", ext_proc_port=0, health_port=0, internal_port=0, http_port=0, tls="off"
)


def authority(pool: int) -> str:
    """Where a gateway finds a pool."""
    return f"pool-{pool}-epp.ns1.svc:9002"


class Attacked:
    """The process, from outside."""

    def __init__(
        self, pools: int = 2, bounds: Mapping[str, object] | None = None, **settings: object
    ) -> None:
        chosen = json.dumps(settings), json.dumps(dict(bounds or {}))
        command = [sys.executable, "-m", "tests.bench.attacked", str(pools), *chosen]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.pid = self._process.pid
        self.address = ""

    def __enter__(self) -> Self:
        self.address = str(self._line()["address"])
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def look(self, *, collect: bool = False) -> dict[str, Any]:
        """Figures since the last look: `lags` in seconds (p50, p99, worst); `turns`, the same of
        the CPU that the loop used in one go while a timer waited, which others' work does not
        lengthen; `steps`, the CPU of each turn of the loop; `cpu` seconds.
        And of now: `rss` bytes, streams and the like.

        Args:
            collect: garbage first, which may take a while; what is free goes back to the system,
                and the `objects` that are left are counted.
                `blocks` are Python's pieces of memory.
        """
        assert self._process.stdin is not None
        self._process.stdin.write("collect\n" if collect else "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the worker is gone"
        answer: dict[str, Any] = json.loads(line)
        return answer


class Sample:
    """Times, the last so many of them, in memory that never grows: what is looked for is a leak."""

    def __init__(self) -> None:
        self._times = array("d", bytes(8 * _KEPT))
        self._count = 0

    def add(self, seconds: float) -> None:
        """One more."""
        self._times[self._count % _KEPT] = seconds
        self._count += 1

    def marks(self) -> list[float]:
        """The median, the 99th percentile and the worst; begins anew."""
        ordered = sorted(self._times[: min(self._count, _KEPT)]) or [0.0]
        self._count = 0
        return [ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]]


class _TimedSelector(FairSelector):
    """Notes the CPU of each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = Sample()
        self._since = time.thread_time()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.steps.add(time.thread_time() - self._since)
        ready = super().select(timeout)
        self._since = time.thread_time()
        return ready


class _Watch:
    """The loop's delays, from inside."""

    def __init__(self, running: Running, steps: Sample) -> None:
        self._running = running
        self._steps = steps
        self._lags = Sample()
        self._turns = Sample()
        self._cpu = _cpu_seconds()

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _LOOK_SECONDS
            used = time.thread_time()
            await asyncio.sleep(_LOOK_SECONDS)
            self._lags.add(loop.time() - due)
            self._turns.add(max(0.0, time.thread_time() - used - _LOOK_SECONDS))

    def figures(self, *, collect: bool) -> dict[str, Any]:
        """See `Attacked.look`."""
        if collect:
            gc.collect()
            allocator()()
        before, self._cpu = self._cpu, _cpu_seconds()
        worker = self._running.worker
        counters = worker.counters
        return {
            "lags": self._lags.marks(),
            "turns": self._turns.marks(),
            "steps": self._steps.marks(),
            "cpu": self._cpu - before,
            "rss": _resident_bytes(),
            "objects": len(gc.get_objects()) if collect else 0,
            "blocks": sys.getallocatedblocks(),
            "streams": counters.streams_open,
            "connections": counters.connections_open,
            "inflight": sum(sum(p.values()) for p in worker.figures().inflight.values()),
        }


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def _read_all(leader: TestLeader) -> None:
    """Reports that nobody reads would pile up, and look like a leak."""
    while isinstance(await leader.call.read(), bytes):
        continue


async def _main(
    pools: int, settings: WorkerSettings, bounds: BoundSettings, folder: Path, steps: Sample
) -> None:
    for pool in range(pools):
        write_pool(folder, f"pool-{pool}", f"10.0.0.{pool + 1}")
    async with running_worker(folder, worker_settings=settings, bounds=bounds) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        holds: Any = {f"pool_{pool}": Hold.OWNER for pool in range(pools)}
        await leader.assign(running.share(1, **holds))
        watch = _Watch(running, steps)
        watching = asyncio.create_task(watch.run())
        reading = asyncio.create_task(_read_all(leader))
        address = running.worker.addresses.ext_proc
        sys.stdout.write(json.dumps({"address": address}) + "\n")
        sys.stdout.flush()
        while said := await asyncio.to_thread(sys.stdin.readline):
            sys.stdout.write(json.dumps(watch.figures(collect="collect" in said)) + "\n")
            sys.stdout.flush()
        watching.cancel()
        reading.cancel()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        chosen: list[dict[str, Any]] = [json.loads(text) for text in sys.argv[2:4]]
        settings, bounds = replace(SETTINGS, **chosen[0]), replace(BoundSettings(), **chosen[1])
        selector = _TimedSelector()
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(_main(int(sys.argv[1]), settings, bounds, Path(name), selector.steps))

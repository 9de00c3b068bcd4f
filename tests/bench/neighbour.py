"""A noisy neighbour: one pool floods a worker, another one asks now and then.

    python -m tests.bench.neighbour ADDRESS

is the noise alone, for as long as nothing is read from its standard input.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterable

from tests.bench.attacked import Attacked, authority
from tests.bench.gateway import Call, GatewayLink, body_of, request
from tests.bench.rows import Row

_IN_FLIGHT = 256
_NOISE = 64 * 1024
_PER_SECOND = 50
_SECONDS = 4.0
_TURNS = 3

_BIG, _SMALL = request(body_of(_NOISE)), request(body_of(2048))


class Noise:
    """A closed loop of `_IN_FLIGHT` requests on one connection."""

    def __init__(self, link: GatewayLink) -> None:
        self._link = link
        self._on = True
        self.done = 0
        for _ in range(_IN_FLIGHT):
            self._again(None)

    def _again(self, call: Call | None) -> None:
        self.done += call is not None
        if self._on and not self._link.lost:
            self._link.begin(authority(0), _BIG, _NOISE, self._again)

    async def began(self) -> None:
        """The first bodies have come back."""
        async with asyncio.timeout(30):
            while self.done < _IN_FLIGHT:
                await asyncio.sleep(0.01)
        self.done = 0

    async def stop(self) -> None:
        """Let what is under way end."""
        self._on = False
        async with asyncio.timeout(30):
            while self._link.calls:
                await asyncio.sleep(0.01)


async def _ask(link: GatewayLink) -> list[float]:
    """Seconds to the pick of each of `_PER_SECOND` requests a second."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    asked = []
    for number in range(int(_SECONDS * _PER_SECOND)):
        await asyncio.sleep(max(0.0, begun + number / _PER_SECOND - loop.time()))
        asked.append(asyncio.create_task(link.pick(authority(1), _SMALL)))
    return await asyncio.gather(*asked)


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100] * 1e3


def _p50(times: list[float]) -> float:
    return sorted(times)[len(times) // 2] * 1e3


class _Elsewhere:
    """The same noise, by a process of its own, whose work does not delay ours."""

    def __init__(self, address: str) -> None:
        command = [sys.executable, "-m", "tests.bench.neighbour", address]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.done = 0

    async def began(self) -> None:
        """The first bodies have come back."""
        assert self._process.stdout is not None
        await asyncio.to_thread(self._process.stdout.readline)

    async def stop(self) -> None:
        """As `Noise.stop`."""
        said, _ = await asyncio.to_thread(self._process.communicate, "\n")
        self.done = int(said)


async def _measure(address: str, *, shared: bool) -> Iterable[Row]:
    quiet: list[float] = []
    noisy: list[float] = []
    done = 0
    seconds = 0.0
    link = await GatewayLink.connect(address)
    for _ in range(_TURNS):
        quiet += await _ask(link)
        noise = Noise(link) if shared else _Elsewhere(address)
        await noise.began()
        began = time.monotonic()
        noisy += await _ask(link)
        seconds += time.monotonic() - began
        await noise.stop()
        done += noise.done
    name = "one connection" if shared else "two connections"
    body_ms = seconds / done * 1e3
    return (
        Row(f"neighbour, {name}: quiet p50", _p50(quiet), "ms"),
        Row(f"neighbour, {name}: quiet p99", _p99(quiet), "ms"),
        Row(f"neighbour, {name}: noisy p50", _p50(noisy), "ms"),
        Row(
            f"neighbour, {name}: noisy p99",
            _p99(noisy),
            "ms",
            target=_p99(quiet) * 1.5 + body_ms,
        ),
        Row(f"neighbour, {name}: noise", done / seconds, "bodies/s"),
    )


def rows() -> Iterable[Row]:
    """Both on one connection, and each on its own."""
    for shared in (False, True):
        with Attacked() as worker:
            yield from asyncio.run(_measure(worker.address, shared=shared))
            look = worker.look()
            yield Row("neighbour: loop lag p99", look["lags"][1] * 1e3, "ms")
            yield Row("neighbour: CPU of a turn, p99", look["steps"][1] * 1e3, "ms", target=1.0)


async def _make_noise(address: str) -> None:
    os.nice(10)  # it shares a core with who asks, whose own waiting for that core is no figure here
    noise = Noise(await GatewayLink.connect(address))
    await noise.began()
    sys.stdout.write("\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.readline)
    sys.stdout.write(f"{noise.done}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_make_noise(sys.argv[1]))

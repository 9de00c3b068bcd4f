"""Many at once: idle connections, open streams, and all of them ending together."""

import asyncio
import time
from collections.abc import Iterable

from epp_worker.http2 import frames
from tests.attackers import HELLO
from tests.bench.attacked import Attacked, authority
from tests.bench.gateway import GatewayLink, body_of, request
from tests.bench.rows import Row

_CONNECTIONS = 10_000
_CLOSED = 6_000
_HELD = 5_000
_MANY_STREAMS = 80_000
_LINKS = 20
_SMALL = request(body_of(2048))
_NEVER = 1 << 40


class Idle(asyncio.Protocol):
    """A connection that is there, and answers PINGs.

    Attributes:
        pings: those asked; leaving: GOAWAYs seen, by loop time.
    """

    pings = 0
    leaving: list[float] = []  # noqa: RUF012 - of all of them

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(HELLO)

    def data_received(self, data: bytes) -> None:
        at = 0
        while len(data) - at >= 9:
            size = int.from_bytes(data[at : at + 3], "big")
            if data[at + 3] == frames.PING and not data[at + 4]:
                Idle.pings += 1
                self.transport.write(frames.ping(data[at + 9 : at + 17], ack=True))
            at += 9 + size


async def _connect(address: str, count: int) -> list[Idle]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    made: list[Idle] = []
    for at in range(0, count, 100):
        coming = (
            loop.create_connection(Idle, host, int(port)) for _ in range(min(100, count - at))
        )
        made += [protocol for _, protocol in await asyncio.gather(*coming)]
    return made


async def _until(worker: Attacked, kind: str, most: int) -> float:
    """Wait until no more than `most` are open; the worst loop lag meanwhile, ms."""
    worst = 0.0
    async with asyncio.timeout(60):
        while True:
            look = worker.look()
            worst = max(worst, float(look["lags"][2]))
            if look[kind] <= most:
                return worst * 1e3
            await asyncio.sleep(0.1)


class Pulse:
    """A gateway that asks every 10 ms; its worst and usual waits are the figures."""

    def __init__(self, link: GatewayLink) -> None:
        self._link = link
        self._times: list[float] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            self._times.append(await self._link.pick(authority(1), _SMALL))
            await asyncio.sleep(0.01)

    def take(self) -> list[float]:
        """Milliseconds since the last time, sorted."""
        taken, self._times = sorted(self._times), []
        return [1e3 * one for one in taken] or [0.0]

    def stop(self) -> None:
        """Ask no more."""
        self._task.cancel()


async def _idle(worker: Attacked) -> Iterable[Row]:
    pulse = Pulse(await GatewayLink.connect(worker.address))
    await asyncio.sleep(1)
    quiet = pulse.take()
    before = worker.look()
    began = time.monotonic()
    crowd = await _connect(worker.address, _CONNECTIONS)
    took = time.monotonic() - began
    after = worker.look()
    accepting, lag = pulse.take(), after["lags"][2] * 1e3
    pulse.stop()
    await asyncio.sleep(1)
    Idle.pings = 0
    worker.look()
    began = time.monotonic()
    await asyncio.sleep(12)
    pinging = worker.look()
    seconds = time.monotonic() - began
    pulse = Pulse(await GatewayLink.connect(worker.address))
    for one in crowd[:_CLOSED]:
        one.transport.abort()
    closing_lag = await _until(worker, "connections", _CONNECTIONS - _CLOSED + 2)
    closing = pulse.take()
    pulse.stop()
    for one in crowd[_CLOSED:]:
        one.transport.abort()
    share = pinging["cpu"] / seconds * 100
    return (
        Row("idle: a connection takes", (after["rss"] - before["rss"]) / _CONNECTIONS, "B", 10_240),
        Row("idle: connections accepted", _CONNECTIONS / took, "/s"),
        Row("idle: pick p99, quiet", quiet[len(quiet) * 99 // 100], "ms"),
        Row("idle: worst pick while they come", accepting[-1], "ms"),
        Row("idle: worst loop lag meanwhile", lag, "ms"),
        Row(f"idle: PINGs to {_CONNECTIONS:,} in 5 s", Idle.pings / seconds, "/s"),
        Row("idle: core for PINGs each 5 s", share, "%"),
        Row("idle: the same at 30 s", share / 6, "%", target=2),
        Row(f"idle: worst pick while {_CLOSED:,} close", closing[-1], "ms"),
        Row("idle: worst loop lag meanwhile", closing_lag, "ms"),
    )


async def _held(worker: Attacked) -> Iterable[Row]:
    link = await GatewayLink.connect(worker.address)
    for _ in range(200):
        await link.pick(authority(0), _SMALL)
    before = worker.look(collect=True)
    links = [await GatewayLink.connect(worker.address) for _ in range(2)]
    for begun in range(_HELD):
        links[begun % 2].begin(authority(0), _SMALL, _NEVER)
        if begun % 50 == 49:  # at once they would also wait, with their messages
            await asyncio.gather(*(one.round_trip() for one in links))
    after = worker.look(collect=True)
    each = (after["rss"] - before["rss"]) / _HELD
    held = [
        Row("held: an open stream takes", each, "B", target=4096),
        Row("held: streams open", after["streams"], ""),
    ]
    for one in links:
        one.close()
    pulse = Pulse(link)
    many = [await GatewayLink.connect(worker.address) for _ in range(_LINKS)]
    for at in range(0, _MANY_STREAMS // _LINKS, 50):
        for one in many:
            for _ in range(min(50, _MANY_STREAMS // _LINKS - at)):
                one.begin(authority(0), _SMALL, _NEVER)
        await asyncio.gather(*(one.round_trip() for one in many))
    opening = pulse.take()
    full = worker.look()
    await asyncio.sleep(2)
    resting, lag = pulse.take(), worker.look()["lags"][2] * 1e3
    for one in many:
        one.close()
    ending_lag = await _until(worker, "streams", 5)
    ending = pulse.take()
    pulse.stop()
    return [
        *held,
        Row("many: streams open", full["streams"], ""),
        Row("many: worst pick while they open", opening[-1], "ms"),
        Row("many: pick p99 while they are open", resting[len(resting) * 99 // 100], "ms"),
        Row("many: worst loop lag meanwhile", lag, "ms"),
        Row(f"many: worst pick while {_LINKS} connections go", ending[-1], "ms"),
        Row("many: worst loop lag as they go", ending_lag, "ms"),
    ]


def rows() -> Iterable[Row]:
    """Of a worker that is fresh each time."""
    with Attacked(bounds={"keepalive_seconds": 5.0}) as worker:
        yield from asyncio.run(_idle(worker))
    with Attacked() as worker:
        yield from asyncio.run(_held(worker))

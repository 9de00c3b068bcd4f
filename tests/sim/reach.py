"""How coordinators reach workers and the leader over the model network."""

import asyncio

from coordinator.reach import StreamEnded
from coordinator.verdicts import Connect
from fleet.control import codec
from fleet.control.messages import (
    CONTROL_METHOD,
    SEEN_EPOCH_KEY,
    WATCH_MAP_METHOD,
    Down,
    MapUpdate,
    Unknown,
    Up,
)
from fleet.model import Addresses, LeaderInfo, Member
from tests.sim.calls import FINISHED
from tests.sim.loop import Process
from tests.sim.network import End, Ended, Network

CONNECT_SECONDS = 0.25
CHECK_SECONDS = 0.5


def _stream_ended(ended: Ended) -> StreamEnded:
    seen = dict(ended.trailing).get(SEEN_EPOCH_KEY)
    return StreamEnded(ended.code, ended.details, seen_epoch=None if seen is None else int(seen))


class SimControlStream:
    """`coordinator.reach.ControlStream`."""

    def __init__(self, network: Network, end: End) -> None:
        self._network = network
        self._end = end

    async def send(self, message: Down) -> None:
        if self._end.over is not None:
            raise _stream_ended(self._end.over)
        self._network.send(self._end, codec.encode(message))

    async def receive(self) -> Up | Unknown | None:
        try:
            return codec.decode_up(await self._end.get())
        except Ended as ended:
            if ended.code == "OK":
                return None
            raise _stream_ended(ended) from None

    async def finish(self) -> None:
        if self._end.over is None:
            self._network.send(self._end, FINISHED)

    async def close(self) -> None:
        if self._end.over is None:
            self._network.close(self._end, Ended("CANCELLED"))


class SimMapStream:
    """`coordinator.reach.MapStream`."""

    def __init__(self, network: Network, end: End) -> None:
        self._network = network
        self._end = end

    async def receive(self) -> MapUpdate | None:
        try:
            return codec.decode_map_update(await self._end.get())
        except Ended as ended:
            if ended.code == "OK":
                return None
            raise _stream_ended(ended) from None

    async def close(self) -> None:
        if self._end.over is None:
            self._network.close(self._end, Ended("CANCELLED"))


class SimReach:
    """`coordinator.reach.Reach` of one process."""

    def __init__(self, process: Process, host: str, network: Network) -> None:
        self._process = process
        self._host = host
        self._network = network

    def control(self, contact: Member) -> SimControlStream:
        address = contact.addresses.internal
        return SimControlStream(
            self._network, self._network.open(self._process, self._host, address, CONTROL_METHOD)
        )

    def map_stream(self, leader: LeaderInfo) -> SimMapStream:
        return SimMapStream(
            self._network,
            self._network.open(self._process, self._host, leader.internal, WATCH_MAP_METHOD),
        )

    async def worker_fault(self, contact: Member) -> str | None:
        return None

    async def leader_fault(self, leader: LeaderInfo) -> str | None:
        return None

    async def connects(self, addresses: Addresses) -> tuple[Connect, Connect]:
        one, two = await asyncio.gather(
            self._connect(addresses.ext_proc), self._connect(addresses.health)
        )
        return one, two

    async def _connect(self, address: str) -> Connect:
        """The kernel answers, whatever its process does."""
        network, process, name = self._network, self._process, self._host
        answer: asyncio.Future[Connect] = process.loop.create_future()
        host = network.host_of(address)
        if host is None:
            return Connect.UNKNOWN
        server = host

        def there() -> None:
            if not server.gone:
                shown = Connect.ACCEPTED if server.accepts else Connect.REFUSED
                network.pass_on(server.name, name, lambda: process.call(back, shown))

        def back(shown: Connect) -> None:
            if not answer.done():
                answer.set_result(shown)

        network.pass_on(name, server.name, there)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await answer
        except TimeoutError:
            return Connect.UNKNOWN

    async def answers(self, addresses: Addresses) -> bool:
        """The process itself must answer."""
        if not addresses.health:
            return await self._connect(addresses.ext_proc) is Connect.ACCEPTED
        network, process, name = self._network, self._process, self._host
        answer: asyncio.Future[None] = process.loop.create_future()
        host = network.host_of(addresses.health)
        if host is None:
            return False
        server = host

        def there() -> None:
            if not server.gone and server.accepts and server.process is not None:
                server.process.call(respond)

        def respond() -> None:
            network.pass_on(server.name, name, lambda: process.call(back))

        def back() -> None:
            if not answer.done():
                answer.set_result(None)

        network.pass_on(name, server.name, there)
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await answer
        except TimeoutError:
            return False
        return True

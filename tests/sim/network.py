"""Cables: hosts, delays, cuts per pair and direction, streams that keep order and break.

A cut holds back what is sent that way until it heals, as TCP does by sending again: so what an old
leader said may arrive seconds later. What is sent the other way arrives for a moment longer: then
nothing has been acknowledged. A stream over a cut that lasts longer than keep-alives breaks on both
sides. A process that dies resets its streams (its kernel does); a host that vanishes says nothing
more.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

from tests.sim.loop import Process, World

KEEPALIVE_SECONDS = 12.0
"""Between a cut and the end of the streams over it."""

UNACKNOWLEDGED_SECONDS = 0.6
"""Between a cut one way and the last that gets through the other way. A kernel that is not
acknowledged what it has sent sends that again, after 0.2 s (RFC 6298, Linux' least), and nothing
new: one report of a worker is on its way by then, or two (docs/reliability.md, row `cut`)."""

STORE, ROUTES = "store", "routes"
"""Names of the two servers, as ends of cuts."""

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Weather:
    """How slow the network is, in seconds.

    Attributes:
        spike: a message is late by up to this much, with the probability of `spikes`.
    """

    base: float = 0.001
    spike: float = 0.05
    spikes: float = 0.01


class Host:
    """A machine or pod: it outlives the processes on it.

    Attributes:
        listening: whether its process has opened its ports.
        gone: it has vanished: nothing answers, not even a refusal.
        serve: accepts a stream: (method, metadata, end); called in the process.
    """

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.process: Process | None = None
        self.listening = False
        self.gone = False
        self.serve: Callable[[str, Metadata, End], None] | None = None

    @property
    def accepts(self) -> bool:
        return self.listening and self.process is not None and self.process.alive


class Ended(Exception):
    """The stream is over."""

    def __init__(
        self, code: str, details: str = "", trailing: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(details or code)
        self.code = code
        self.details = details
        self.trailing = trailing


class End:
    """One side of a stream, in one process.

    Attributes:
        peer: name of the host at the other side.
        over: why nothing more comes or goes; None while it is open.
        on_over: called in the process when the other side, or the network, has ended it.
    """

    def __init__(self, process: Process, host: str, peer: str) -> None:
        self.process = process
        self.host = host
        self.peer = peer
        self.over: Ended | None = None
        self.other: End | None = None
        self.on_over: Callable[[], None] | None = None
        self.out: deque[tuple[float, Callable[[], None]]] = deque()
        self._inbox: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def arrived(self, item: object) -> None:
        """In the process: something came."""
        if self.over is None:
            self._inbox.append(item)
            self._wake()

    def end(self, ended: Ended) -> None:
        """In the process: the stream is over; what came before can still be read."""
        if self.over is None:
            self.over = ended
            self._wake()
            if self.on_over is not None:
                self.on_over()

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def get(self) -> Any:
        """The next thing that came.

        Raises:
            Ended: nothing more will.
        """
        while not self._inbox:
            if self.over is not None:
                raise self.over
            waiter = self._waiter = self.process.loop.create_future()
            await waiter
        return self._inbox.popleft()

    async def ended(self) -> None:
        """Return once it is over; what still comes is dropped."""
        while self.over is None:
            self._inbox.clear()
            waiter = self._waiter = self.process.loop.create_future()
            await waiter


class Network:
    """All cables."""

    def __init__(self, world: World, rng: random.Random, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.hosts: dict[str, Host] = {}
        self._rng = rng
        self._cuts: dict[tuple[str, str], int] = {}
        self._stalled: dict[tuple[str, str], list[Callable[[], None]]] = {}
        self._muted: set[tuple[str, str]] = set()
        self._began: dict[tuple[str, str], float] = {}
        self._ends: dict[End, None] = {}

    def add(self, host: Host) -> None:
        self.hosts[host.address] = host

    def host_of(self, address: str) -> Host | None:
        """By `host:port`."""
        return self.hosts.get(address.rpartition(":")[0])

    def delay(self) -> float:
        """One message's way, in seconds."""
        rng, weather = self._rng, self.weather
        seconds = weather.base * (0.5 + rng.random())
        if rng.random() < weather.spikes:
            seconds += rng.random() * weather.spike
        return seconds

    # -- cuts -----------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from `source` to `target` any more, nor, in a moment, the other way; cuts of
        one pair add up."""
        pair = (source, target)
        self._cuts[pair] = self._cuts.get(pair, 0) + 1
        if self._cuts[pair] == 1:
            self._began[pair] = self.world.now
            self._hold_back(pair)
            self.world.later(UNACKNOWLEDGED_SECONDS, self._mute, pair, self.world.now)

    def heal(self, source: str, target: str) -> None:
        pair = (source, target)
        self._cuts[pair] -= 1
        if self._cuts[pair] == 0:
            del self._cuts[pair]
            self._muted.discard((target, source))
            self._let_through(pair)
            self._let_through((target, source))

    def _mute(self, pair: tuple[str, str], began: float) -> None:
        if pair in self._cuts and self._began[pair] == began:
            self._muted.add((pair[1], pair[0]))
            self._hold_back((pair[1], pair[0]))

    def _hold_back(self, pair: tuple[str, str]) -> None:
        if pair not in self._stalled:
            self._stalled[pair] = []
            self.world.later(KEEPALIVE_SECONDS, self._starve, pair, self._stalled[pair])

    def _let_through(self, pair: tuple[str, str]) -> None:
        if pair not in self._cuts and pair not in self._muted:
            for deliver in self._stalled.pop(pair, ()):
                self.world.later(self.delay(), deliver)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._stalled

    def cut_from(self, name: str, *, but: Container[str] = ()) -> bool:
        """Whether any cut concerns this name, `but` for those between it and one of these."""
        return any(name in pair and not all(end in but for end in pair) for pair in self._stalled)

    def _starve(self, pair: tuple[str, str], stalled: list[Callable[[], None]]) -> None:
        if self._stalled.get(pair) is not stalled:
            return  # it has healed since
        for end in list(self._ends):
            if {end.host, end.peer} == set(pair):
                self._lose(end)

    def _lose(self, end: End) -> None:
        self._ends.pop(end, None)
        end.out.clear()
        end.process.call(end.end, Ended("UNAVAILABLE", "keep-alive unanswered"))

    def pass_on(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Have `deliver` called outside once it has crossed, however long that takes."""

        def cross() -> None:
            if self.is_cut(source, target):
                self._stalled[source, target].append(cross)
            else:
                deliver()

        self.world.later(self.delay(), cross)

    # -- streams --------------------------------------------------------------------------------

    def open(
        self, process: Process, host: str, address: str, method: str, metadata: Metadata = ()
    ) -> End:
        """A stream from a process to whatever listens at `address`; does not wait."""
        server = self.host_of(address)
        near = End(process, host, "" if server is None else server.name)
        if server is None:
            process.call(near.end, Ended("UNAVAILABLE", "no such host"))
            return near
        self._ends[near] = None
        self._put(near, lambda: self._accept(near, server, method, metadata))
        return near

    def _accept(self, near: End, server: Host, method: str, metadata: Metadata) -> None:
        if near.over is not None or not near.process.alive or server.gone:
            return
        if not server.accepts:
            refusal = Ended("UNAVAILABLE", "connection refused")
            self.pass_on(server.name, near.host, lambda: near.process.call(near.end, refusal))
            return
        assert server.process is not None and server.serve is not None
        far = End(server.process, server.name, near.host)
        near.other, far.other = far, near
        self._ends[far] = None
        server.process.call(server.serve, method, metadata, far)

    def _put(self, end: End, deliver: Callable[[], None]) -> None:
        """In order with all else that this end sends."""
        end.out.append((self.world.now + self.delay(), deliver))
        if len(end.out) == 1:
            self.world.at(end.out[0][0], self.world.outside, self._pump, end)

    def _pump(self, end: End) -> None:
        pair = (end.host, end.peer)
        while end.out:
            if pair in self._stalled:
                self._stalled[pair].append(lambda: self._pump(end))
                return
            when, deliver = end.out[0]
            if when > self.world.now:
                self.world.at(when, self.world.outside, self._pump, end)
                return
            end.out.popleft()
            deliver()

    def send(self, end: End, item: object) -> None:
        """From one end to the other, after all that was sent before."""

        def deliver() -> None:
            other = end.other
            if other is not None and other.process.alive:
                other.process.call(other.arrived, item)

        self._put(end, deliver)

    def close(self, end: End, ended: Ended) -> None:
        """This side ends it: the other hears of it after all that was sent before."""
        end.over = end.over or ended
        self._ends.pop(end, None)

        def deliver() -> None:
            other = end.other
            if other is not None:
                self._ends.pop(other, None)
                if other.process.alive:
                    other.process.call(other.end, ended)

        self._put(end, deliver)

    def died(self, process: Process, *, vanished: bool) -> None:
        """Its kernel resets its streams; or nobody does, and the others find out for themselves."""
        for end in [end for end in self._ends if end.process is process]:
            if not vanished:
                self.close(end, Ended("UNAVAILABLE", "connection reset"))
                continue
            del self._ends[end]
            end.out.clear()
            if end.other is not None:
                self.world.later(KEEPALIVE_SECONDS, self._lose, end.other)

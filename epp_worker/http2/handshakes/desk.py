"""Who shakes hands, and who waits for it.

The dear steps are taken by a thread, a few at a time, so that a turn of the loop takes on no more
connections than these; 2,000 gateways that come back at once are taken one after another. Sources
take turns (see `sources`): neither one that opens thousands of connections nor one that leaves its
handshakes half done keeps another waiting.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from epp_worker.http2 import hello
from epp_worker.http2.bounds import Bound
from epp_worker.http2.contract import Tls
from epp_worker.http2.dismiss import dismiss
from epp_worker.http2.handshakes.secured import Room, Secured
from epp_worker.http2.handshakes.shaking import Shaking, Step
from epp_worker.http2.handshakes.sources import Crowd, Lines
from epp_worker.http2.handshakes.stepper import Stepper
from epp_worker.http2.shared import Shared
from epp_worker.http2.timers import Ticket
from fleet.model.identity import host_port

AT_WORK: Final = 8
"""Steps asked for and not taken yet: 1 to 2 ms of the thread's work, and at most as many new
connections in one turn of the loop, at 0.1 ms each."""

_WAITS: Final = 3
"""Who waits for its turn longer than so many handshakes may take is let go; most clients have gone
before."""

_H2: Final = b"h2"


class _Client:
    """A socket whose hello is here.

    Attributes:
        begun: when its handshake was, by the loop's clock; None while it waits.
        taken: what became of its last step.
        at_work: the thread has it.
        watched: the loop waits for its socket.
        gone: nobody wants it any more.
    """

    __slots__ = (
        "address",
        "arriving",
        "at_work",
        "begun",
        "desk",
        "gone",
        "shaking",
        "since",
        "source",
        "taken",
        "ticket",
        "watched",
    )

    def __init__(
        self, desk: "Handshakes", arriving: socket.socket, address: tuple[Any, ...], since: float
    ) -> None:
        self.desk = desk
        self.arriving = arriving
        self.address = address
        self.source = str(address[0])
        self.since = since
        self.begun: float | None = None
        self.shaking = Shaking(arriving)
        self.taken = Step.READ
        self.at_work = False
        self.watched = False
        self.gone = False
        self.ticket: Ticket | None = None

    def step(self) -> None:
        """See `Stepping`."""
        self.taken = self.shaking.step()

    def check(self, now: float) -> float | None:
        """See `Timed`."""
        return self.desk.check(self, now)

    def drop(self) -> None:
        """Make room for others."""
        self.desk.give_up(self, "crowded out")


class Handshakes:
    """Those that wait and those under way.

    Args:
        make: a new connection's protocol.
        crowd: all who are no connection yet, those here among them.
    """

    def __init__(
        self,
        shared: Shared,
        make: Callable[[], asyncio.Protocol],
        tls: Tls,
        crowd: Crowd[Any],
    ) -> None:
        self._shared = shared
        self._make = make
        self._tls = tls
        self._crowd = crowd
        self._loop = asyncio.get_running_loop()
        self._room = Room(
            self._loop,
            shared.limits.keepalive_timeout_seconds,
            lambda: shared.counters.hit(Bound.IDLE_FRAMES),
        )
        self._stepper: Stepper[_Client] = Stepper(self._loop, self._stepped)
        self._clients: dict[_Client, None] = {}
        self._waiting: Lines[_Client] = Lines()
        self._going: Lines[_Client] = Lines()
        """Those under way whose next step can be taken."""
        self._under_way: Crowd[_Client] = Crowd()
        self._at_work = 0
        self._new_next = False
        self._later: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._clients)

    def add(self, arriving: socket.socket, address: tuple[Any, ...], record: bytes) -> None:
        """Begin with this one as soon as it is its turn."""
        offered = hello.offered_protocols(record)
        if offered is not None and _H2 not in offered:
            dismiss(arriving, hello.NO_APPLICATION_PROTOCOL)
            self._failed(address, "no h2 in ALPN")
            return
        now = self._loop.time()
        client = _Client(self, arriving, address, now)
        self._clients[client] = None
        self._crowd.add(client.source, client)
        self._shared.timers.at(now + self._shared.limits.handshake_seconds * _WAITS, client)
        self._waiting.add(client.source, client)
        self._feed()

    def close(self) -> None:
        """Drop them all."""
        self._stepper.close()
        if self._later is not None:
            self._later.cancel()
        for client in tuple(self._clients):
            client.at_work = False
            self._forget(client)
            client.arriving.close()
        self._waiting, self._going = Lines(), Lines()

    # For clients.

    def check(self, client: _Client, now: float) -> float | None:
        """Its time may be up."""
        due = self._due(client)
        if now < due:
            return due
        self.give_up(client, "timeout")
        return None

    def give_up(self, client: _Client, reason: str) -> None:
        """End it; if the thread has it, its socket is closed once that is done."""
        self._let_go(client, reason)
        self._feed()

    # Inside.

    def _due(self, client: _Client) -> float:
        seconds = self._shared.limits.handshake_seconds
        if client.begun is None:
            return client.since + seconds * _WAITS
        return client.begun + seconds

    def _let_go(self, client: _Client, reason: str) -> None:
        self._failed(client.address, reason)
        self._forget(client)
        if not client.at_work:
            client.arriving.close()

    def _forget(self, client: _Client) -> None:
        client.gone = True
        del self._clients[client]
        self._crowd.remove(client)
        self._under_way.remove(client)
        self._shared.timers.forget(client)
        self._leave(client)

    def _leave(self, client: _Client) -> None:
        if client.watched:
            client.watched = False
            self._loop.remove_reader(client.arriving.fileno())
            self._loop.remove_writer(client.arriving.fileno())

    def _feed(self) -> None:
        """Give the thread what it can take: one that goes on and one that begins, in turns."""
        while self._at_work < AT_WORK:
            client = self._next()
            if client is None:
                return
            if client.gone:
                continue
            if client.begun is None:
                self._begin(client)
            client.at_work = True
            self._at_work += 1
            self._stepper.submit(client)

    def _next(self) -> _Client | None:
        new = bool(self._waiting) and (self._new_next or not self._going) and self._has_room()
        self._new_next = not new
        if new:
            return self._waiting.take()
        return self._going.take() if self._going else None

    def _begin(self, client: _Client) -> None:
        client.begun = self._loop.time()
        client.shaking.begin(self._tls.context())
        self._under_way.add(client.source, client)
        self._shared.timers.at(self._due(client), client)

    def _has_room(self) -> bool:
        """Whether the next may begin. If all places are taken, the oldest of the source that has
        most gives way to another source at once, and to its own after half of its time."""
        limits, under_way = self._shared.limits, self._under_way
        if len(under_way) < limits.max_handshakes:
            return True
        if self._waiting.seek(lambda source: under_way.of(source) + 1 < under_way.most):
            victim = under_way.in_the_way(self._waiting.next())
        else:
            victim = under_way.oldest()
            if victim is not None and victim.begun is not None:
                wait = victim.begun + limits.handshake_seconds / 2 - self._loop.time()
                if wait > 0:
                    if self._later is None:
                        self._later = self._loop.call_later(wait, self._look_again)
                    return False
        if victim is not None:
            self._let_go(victim, "crowded out")
        return True

    def _look_again(self) -> None:
        self._later = None
        self._feed()

    def _stepped(self, client: _Client) -> None:
        client.at_work = False
        self._at_work -= 1
        if client.gone:
            client.arriving.close()
        elif client.taken is Step.DONE:
            self._attach(client)
        elif client.taken is Step.FAILED:
            self.give_up(client, client.shaking.reason)
        else:
            client.watched = True
            number = client.arriving.fileno()
            if client.taken is Step.READ:
                self._loop.add_reader(number, self._ready, client)
            else:
                self._loop.add_writer(number, self._ready, client)
        self._feed()

    def _ready(self, client: _Client) -> None:
        self._leave(client)
        self._going.add(client.source, client)
        self._feed()

    def _attach(self, client: _Client) -> None:
        self._forget(client)
        self._shared.counters.tls_handshakes += 1
        transport = Secured(self._room, client.arriving, client.shaking, client.address)
        transport.begin(self._make())

    def _failed(self, address: tuple[Any, ...], reason: str) -> None:
        counts = self._shared.counters.tls_failed
        counts[reason] = counts.get(reason, 0) + 1
        self._shared.warn.log(
            logging.WARNING,
            "TLS handshake failed",
            key=reason,
            extra={"peer": host_port(str(address[0]), address[1]), "reason": reason},
        )

"""ext_proc's one method: finds each stream's group, and ties the stream to a session.

The hot path does one look-up by `:authority` and creates a session; all else (strays, groups that
are lost, authorities that name nothing) branches off. The look-up is forgotten whenever holds or
pools change.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from epp_worker.catalogue import Catalogue
from epp_worker.draining import Farewells
from epp_worker.extproc.budget import BodyShare
from epp_worker.extproc.endings import OK, Status
from epp_worker.extproc.session import Session
from epp_worker.forwarding.peer_stream import PeerStream
from epp_worker.forwarding.rules import Past
from epp_worker.group import Group
from epp_worker.holdings import Holdings
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.http2.stream import Stream
from epp_worker.scheduling.contract import Picker
from epp_worker.strays import UNAVAILABLE, HeldStream, StrayGate
from epp_worker.turns import Turns
from epp_worker.wheel import Lane
from fleet.errors import AuthorityError
from fleet.model import GroupKey, Hold
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

PATH: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
BODY_WAIT_SECONDS: Final = 0.1
"""How long a peer that names no body mode may leave it open whether a body follows."""
INTERNAL: Final = 13
ENVOY_HEADER: Final = "x-envoy-internal"
"""Envoy alone says this of itself on the streams it opens. A stream that another worker forwards
has no such header: it stays."""

ONE_WRITE_BYTES: Final = 256 * 1024
"""Streams that have more to say stay: what takes long to arrive gives a model server the time to
answer before it has read the body, and then the end of the stream would come too late."""

LAST_BYTES: Final = 256
"""More than the end of a body and of a stream take, with their frames."""

_PREFIX_BYTES: Final = 5
_OWNER: Final = Hold.OWNER
MAX_ROUTES: Final = 16_384
"""Authorities remembered; a peer that makes them up only makes us look them up again."""


class NewSession(Protocol):
    """Makes the session of one stream."""

    def __call__(self, picker: Picker, share: BodyShare) -> Session:
        """A session that picks from `picker`; `share` is what its group's bodies hold."""
        ...


class Forwards(Protocol):
    """Passes streams on to the owners of their groups."""

    def take(
        self, stream: GrpcStream, group: GroupKey, past: Past, *, known: bool
    ) -> StreamHandler | None:
        """What passes the stream on; None while it is not known to whom.

        Args:
            known: there are pools of this group, so that others may be asked about it.
        """
        ...


class ServedStream:
    """Passes messages between one stream and its session.

    What the session raises is for the transport: it ends the stream and calls `aborted`.
    """

    __slots__ = ("_lane", "_own", "_session", "_stream")

    def __init__(self, stream: GrpcStream, session: Session, body_lane: Lane) -> None:
        self._stream = stream
        self._own = stream if isinstance(stream, Stream) else None
        """The transport's own stream, whose methods compiled code calls without looking them up."""
        self._session: Session | None = session
        session.on_starved = self._starved
        session.detachable = ENVOY_HEADER in stream.headers
        self._lane: Lane | None = body_lane

    def received(self, message: bytes) -> None:
        """See `StreamHandler.received`."""
        session = self._session
        if session is None:
            return
        replies = session.receive(message)
        if session.parting is not None:
            self._part(session, replies)
            return
        if replies:
            self._send(replies)
        if session.ended is not None:
            self._end(session.ended)
        elif session.waiting and self._lane is not None:
            lane, self._lane = self._lane, None
            lane.add(self._waited)

    def half_closed(self) -> None:
        """See `StreamHandler.half_closed`."""
        session = self._session
        if session is not None:
            self._answer(session, session.half_closed())

    def aborted(self) -> None:
        """See `StreamHandler.aborted`: the normal end of most Envoy streams."""
        session, self._session = self._session, None
        if session is not None:
            session.aborted()

    def _answer(self, session: Session, replies: Sequence[bytes]) -> None:
        if replies:
            self._send(replies)
        if session.ended is not None:
            self._end(session.ended)

    def _part(self, session: Session, replies: Sequence[bytes]) -> None:
        """End the stream with the pick, if all that is to be said leaves in one write.

        The gateway must learn of the request's end no later than of the stream's, and of the pick
        not much before: it would otherwise await an answer to a response of which it has handed the
        body to a stream that is gone, and that body would be lost.
        """
        own = self._own
        size = _PREFIX_BYTES * len(replies) + LAST_BYTES
        for reply in replies:
            size += len(reply)
        fits = self._stream.fits(size) if own is None else own.fits(size)
        if size <= ONE_WRITE_BYTES and fits:
            self._send([*replies, *session.leave()])
            self._end(OK)
        else:
            self._send([*replies, *session.stay()])

    def _send(self, replies: Sequence[bytes]) -> None:
        if self._own is None:
            self._stream.send(*replies)
        else:
            self._own.send_all(replies)

    def _starved(self, replies: Sequence[bytes]) -> None:
        """Others need what this stream holds."""
        session = self._session
        if session is not None:
            self._answer(session, replies)

    def _end(self, status: Status) -> None:
        self._session = None
        if self._own is None:
            self._stream.end(status.code, status.message)
        else:
            self._own.end(status.code, status.message)

    def _waited(self) -> None:
        """No body message came in time. The caller is a timer: nothing may be raised."""
        session = self._session
        if session is None or not session.waiting:
            return
        try:
            self._answer(session, session.waited())
        except Exception as error:  # noqa: BLE001 - it must not reach the timer
            # Not the error's text: it may quote a prompt.
            log.error("ext_proc session failed", extra={"error": type(error).__name__})
            self._stream.end(INTERNAL, "internal error")
            self.aborted()


class _Ended:
    """The handler of a stream that was refused when it began."""

    __slots__ = ()

    def received(self, message: bytes) -> None:
        """Nothing is read any more."""

    def half_closed(self) -> None:
        """Nothing is read any more."""

    def aborted(self) -> None:
        """Nothing is kept."""


_ENDED: Final = _Ended()


class ExtProc:
    """The service at `PATH`."""

    def __init__(
        self,
        catalogue: Catalogue,
        holdings: Holdings,
        gate: StrayGate,
        body_lane: Lane,
        new_session: NewSession,
        turns: Turns,
        *,
        propagation_seconds: float,
        now: Callable[[], float],
        limited: RateLimited,
    ) -> None:
        self._catalogue = catalogue
        self._holdings = holdings
        self._gate = gate
        self._new_session = new_session
        self._turns = turns
        self._propagation_seconds = propagation_seconds
        self._now = now
        self._limited = limited
        self._forwards: Forwards | None = None
        self._routes: dict[str, Group] = {}
        self._farewells = Farewells()
        self._body_lane = body_lane

    def forward_by(self, forwards: Forwards) -> None:
        """Have streams of groups that are not held here passed on."""
        self._forwards = forwards

    def __call__(self, stream: GrpcStream) -> StreamHandler:
        """A stream begins."""
        authority = stream.authority
        group = self._routes.get(authority)
        if group is None:
            try:
                group = self._find(authority)
            except AuthorityError as error:
                return self._refuse(stream, error)
            if group is None:
                return self._elsewhere(stream)
        return self._serve(stream, group)

    def from_peer(self, stream: GrpcStream) -> StreamHandler:
        """A stream that another worker forwards begins: it goes no further, and is no sign of a
        route that leads here."""
        try:
            group = self._find(stream.authority)
        except AuthorityError as error:
            stream.end(UNAVAILABLE, str(error))
            return _ENDED
        if group is None:
            past = Past(self._now(), onward=False)
            return self._gate.hold(stream, past, known=self._is_known(stream.authority))
        return self._session(stream, group)

    def _elsewhere(self, stream: GrpcStream) -> StreamHandler:
        past = Past(self._now())
        inner = self._forward(stream, past)
        if inner is not None:
            self._see_off(stream, None, past.since)
            return inner
        return self._gate.hold(stream, past, known=self._is_known(stream.authority))

    def _forward(self, stream: GrpcStream, past: Past) -> StreamHandler | None:
        """Pass a stream on if its group is not held here, or not far enough to serve what another
        worker owns, and its owner is known."""
        key = self._catalogue.authorities.resolve(stream.authority)
        if self._forwards is None or key is None:
            return None
        group = self._holdings.get(key)
        if group is not None and (group.serving or group.hold is Hold.OWNER):
            return None
        known = bool(self._catalogue.pools_of(key))
        return self._forwards.take(stream, key, past, known=known)

    def _serve(self, stream: GrpcStream, group: Group) -> StreamHandler:
        if group.hold is not _OWNER:
            self._stray(stream, group)
        return self._session(stream, group)

    def _session(self, stream: GrpcStream, group: Group) -> StreamHandler:
        group.streams += 1
        session = self._new_session(group.picker, group.bodies)
        served = ServedStream(stream, session, self._body_lane)
        return self._turns.pace(stream, group.line, served)

    def _find(self, authority: str) -> Group | None:
        """The group of an authority, if it is here and can serve."""
        key = self._catalogue.authorities.resolve(authority)
        group = self._holdings.get(key) if key is not None else None
        if group is None or not group.serving:
            return None
        if len(self._routes) >= MAX_ROUTES:
            self._routes.clear()
        self._routes[authority] = group
        return group

    def _is_known(self, authority: str) -> bool:
        """Whether an authority that can be read names a pool that there is, here or elsewhere."""
        key = self._catalogue.authorities.resolve(authority)
        return key is not None and bool(self._catalogue.pools_of(key))

    def _refuse(self, stream: GrpcStream, error: AuthorityError) -> StreamHandler:
        self._limited.warning("stream refused", extra={"reason": str(error)})
        self._gate.counts.failed += 1
        stream.end(UNAVAILABLE, str(error))
        return _ENDED

    def _stray(self, stream: GrpcStream, group: Group) -> None:
        """Another worker owns the group: serve, and see whether the connection should go."""
        now = self._now()
        self._gate.counts.served += 1
        group.last_stray = now
        self._see_off(stream, group, now)

    def _see_off(self, stream: GrpcStream, group: Group | None, now: float) -> None:
        """Send the connection of a stray away once routes have had their time.

        That is counted from the loss; of a group that was not lost here, or longer ago, from the
        connection's first stray, since a route may be ahead of what we were told.
        """
        connection = stream.connection
        host = connection.peer.rpartition(":")[0]
        if group is not None and group.hold is Hold.DRAINING:
            began = group.draining_since
        else:
            began = self._farewells.first_stray(connection, now)
        if self._farewells.stray(connection, host, now, began + self._propagation_seconds):
            connection.go_away()

    def changed(self) -> None:
        """Holds or pools have changed."""
        self._routes.clear()
        self.look_again()

    def look_again(self) -> None:
        """Others may be known, or reached, now: serve or pass on what waits."""
        if len(self._gate):
            self._gate.release(self._held_again)
            self._gate.forward(self._forward_held)

    def _forward_held(self, held: HeldStream) -> StreamHandler | None:
        try:
            return self._forward(held.stream, held.past)
        except AuthorityError:
            return None  # as below

    def _held_again(self, stream: GrpcStream) -> StreamHandler | None:
        try:
            group = self._find(stream.authority)
        except AuthorityError:
            # It has no port and has become ambiguous since it came: it waits its time out.
            return None
        if group is None:
            return None
        if group.hold is not Hold.OWNER and not isinstance(stream, PeerStream):
            group.last_stray = self._now()
        return self._session(stream, group)

    def tick(self) -> None:
        """A heartbeat: forget connections that are long gone, and look after what waits."""
        self._farewells.prune(self._now())
        self.look_again()

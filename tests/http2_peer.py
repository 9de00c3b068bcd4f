"""The other end of an HTTP/2 connection, for tests: services, a socketless transport, clients.

`Wire` holds one connection of the server over a transport that is a list; `Client` speaks to it
with the `h2` library, whose strictness is the oracle; raw frames are made by hand.
"""

import asyncio
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import h2.config
import h2.connection
import h2.events
import h2.settings

from epp_worker.http2 import Counters, Http2Limits
from epp_worker.http2.connection import Connection
from epp_worker.http2.contract import GrpcStream, Service, StreamHandler
from epp_worker.http2.shared import Shared

ECHO = "/test.Echo/Call"

Frame = tuple[int, int, int, bytes]
"""(type, flags, stream id, payload)."""


class Recorder:
    """A handler that echoes messages, ends with the client, and remembers what happened."""

    def __init__(self, stream: GrpcStream) -> None:
        self.stream = stream
        self.messages: list[bytes] = []
        self.closed = 0
        self.aborts = 0
        self.answers = True

    def received(self, message: bytes) -> None:
        """Echo."""
        self.messages.append(message)
        if self.answers:
            self.stream.send(message)

    def half_closed(self) -> None:
        """End with the client."""
        self.closed += 1
        if self.answers:
            self.stream.end()

    def aborted(self) -> None:
        """Count."""
        self.aborts += 1


@dataclass
class Recording:
    """An echo service that keeps its handlers."""

    handlers: list[Recorder] = field(default_factory=list)
    make: Callable[[GrpcStream], StreamHandler] | None = None

    def __call__(self, stream: GrpcStream) -> StreamHandler:
        """Serve one call."""
        recorder = Recorder(stream)
        self.handlers.append(recorder)
        return self.make(stream) if self.make else recorder

    @property
    def last(self) -> Recorder:
        """The newest call's handler."""
        return self.handlers[-1]


class FakeTransport(asyncio.Transport):
    """Keeps what is written; `full` plays a socket whose buffer does not empty."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711)})
        self.written = bytearray()
        self.writes = 0
        self.buffered = 0
        self.closed = False
        self.aborted = False
        self.reading = True

    def pause_reading(self) -> None:
        """Note it."""
        self.reading = False

    def resume_reading(self) -> None:
        """Note it."""
        self.reading = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take it."""
        assert not self.aborted
        self.written += data
        self.writes += 1

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def abort(self) -> None:
        """Note it."""
        self.closed = self.aborted = True

    def is_closing(self) -> bool:
        """As noted."""
        return self.closed

    def get_write_buffer_size(self) -> int:
        """As the test says."""
        return self.buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Of no meaning here."""


class FakeTimer:
    """One `call_at`."""

    def __init__(self, when: float, callback: Callable[..., object]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Note it."""
        self.cancelled = True


class FakeLoop:
    """`call_soon`, `call_at` and `time`, driven by the test."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._soon: list[Callable[[], object]] = []
        self._timers: list[FakeTimer] = []

    def time(self) -> float:
        """As advanced by the test."""
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Remember for `run`."""
        self._soon.append(partial(callback, *args))

    def call_at(self, when: float, callback: Callable[..., object]) -> FakeTimer:
        """Remember for `advance`."""
        timer = FakeTimer(when, callback)
        self._timers.append(timer)
        return timer

    def run(self) -> None:
        """What `call_soon` was given, until there is no more."""
        while self._soon:
            self._soon.pop(0)()

    def advance(self, seconds: float) -> None:
        """Let time pass and timers fire, in order."""
        end = self.now + seconds
        while True:
            self._timers = [timer for timer in self._timers if not timer.cancelled]
            due = min(self._timers, key=lambda timer: timer.when, default=None)
            if due is None or due.when > end:
                break
            self._timers.remove(due)
            self.now = max(self.now, due.when)
            due.callback()
            self.run()
        self.now = end
        self.run()


class Wire:
    """A server of one connection, without sockets."""

    def __init__(
        self, services: Mapping[str, Service] | None = None, limits: Http2Limits | None = None
    ) -> None:
        self.loop = FakeLoop()
        self.service = Recording()
        self.counters = Counters()
        self.shared = Shared(
            services or {ECHO: self.service}, limits or Http2Limits(), self.counters, self.loop
        )
        self.connect()

    def connect(self) -> None:
        """A new connection in place of the one at hand."""
        self.transport = FakeTransport()
        self.connection = Connection(self.shared)
        self.connection.connection_made(self.transport)
        self.loop.run()

    def feed(self, data: bytes) -> None:
        """Bytes from the client, one read."""
        self.connection.data_received(data)
        self.loop.run()

    def take(self) -> bytes:
        """What was written since the last `take`."""
        data = bytes(self.transport.written)
        self.transport.written.clear()
        return data

    def frames(self) -> list[Frame]:
        """The same, as frames."""
        return split(self.take())

    def talk(self, *pieces: bytes) -> list[Frame]:
        """Feed, and the frames that came back."""
        for piece in pieces:
            self.feed(piece)
        return self.frames()

    def closed(self) -> bool:
        """Whether the server has closed the connection."""
        return self.transport.closed

    def lose(self) -> None:
        """The connection is gone."""
        self.connection.connection_lost(None)
        self.loop.run()


def split(data: bytes) -> list[Frame]:
    """Whole frames out of bytes."""
    frames: list[Frame] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "big")
        kind, flags, stream_id = struct.unpack_from(">BBI", data, at + 3)
        frames.append((kind, flags, stream_id, data[at + 9 : at + 9 + size]))
        at += 9 + size
    assert at == len(data)
    return frames


def raw(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    """A frame by hand."""
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream_id.to_bytes(4, "big") + payload


def grpc(*messages: bytes) -> bytes:
    """Messages with their prefixes."""
    return b"".join(b"\0" + len(message).to_bytes(4, "big") + message for message in messages)


def messages_in(data: bytes) -> list[bytes]:
    """The reverse of `grpc`."""
    found: list[bytes] = []
    while data:
        size = int.from_bytes(data[1:5], "big")
        found.append(data[5 : 5 + size])
        data = data[5 + size :]
    return found


def request_headers(
    path: str = ECHO,
    authority: str = "epp.ns.svc:9002",
    extra: Iterable[tuple[str, str]] = (),
    method: str = "POST",
) -> list[tuple[str, str]]:
    """A gRPC request's header list."""
    return [
        (":method", method),
        (":scheme", "http"),
        (":path", path),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        *extra,
    ]


@dataclass
class Answer:
    """What a client saw of one stream."""

    headers: dict[str, str] = field(default_factory=dict)
    trailers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int | None:
        """`grpc-status`, wherever it came."""
        value = self.trailers.get("grpc-status", self.headers.get("grpc-status"))
        return None if value is None else int(value)

    @property
    def messages(self) -> list[bytes]:
        """All whole messages."""
        return messages_in(self.body)


class Client:
    """An `h2` client, fed and emptied by hand. `auto` grants windows as data comes in."""

    def __init__(self, *, auto: bool = True) -> None:
        config = h2.config.H2Configuration(client_side=True, header_encoding="utf-8")
        self.h2 = h2.connection.H2Connection(config)
        self.h2.initiate_connection()
        self.auto = auto
        self.answers: dict[int, Answer] = {}
        self.goaways: list[tuple[int, int]] = []
        self.acked = False

    def open(self, headers: list[tuple[str, str]] | None = None, *, end: bool = False) -> int:
        """Begin a stream."""
        stream_id = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream_id, headers or request_headers(), end_stream=end)
        self.answers[stream_id] = Answer()
        return stream_id

    def send(self, stream_id: int, *messages: bytes, end: bool = False) -> None:
        """Send messages, in frames of the size allowed; windows must suffice."""
        data = grpc(*messages)
        size = self.h2.max_outbound_frame_size
        parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        for part in parts[:-1]:
            self.h2.send_data(stream_id, part)
        self.h2.send_data(stream_id, parts[-1], end_stream=end)

    def out(self) -> bytes:
        """What the client wants to send."""
        return self.h2.data_to_send()

    def receive(self, data: bytes) -> None:
        """Bytes from the server; a protocol error of the server raises."""
        for event in self.h2.receive_data(data):
            self._note(event)

    def _note(self, event: h2.events.Event) -> None:
        answer = self.answers.setdefault(getattr(event, "stream_id", 0) or 0, Answer())
        if isinstance(event, h2.events.ResponseReceived):
            answer.headers = dict(event.headers)
        elif isinstance(event, h2.events.TrailersReceived):
            answer.trailers = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            answer.body += event.data
            if self.auto and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            answer.ended = True
        elif isinstance(event, h2.events.StreamReset):
            answer.reset = int(event.error_code)
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goaways.append((event.last_stream_id or 0, int(event.error_code or 0)))
        elif isinstance(event, h2.events.SettingsAcknowledged):
            self.acked = True


def exchange(wire: Wire, client: Client) -> None:
    """Bytes both ways until neither side has more to say."""
    while True:
        to_server = client.out()
        if to_server:
            wire.feed(to_server)
        to_client = wire.take()
        if to_client:
            client.receive(to_client)
        if not to_server and not to_client:
            return


def talk(limits: Http2Limits | None = None) -> tuple[Wire, Client]:
    """A server and a client that have greeted each other."""
    wire, client = Wire(limits=limits), Client()
    exchange(wire, client)
    return wire, client

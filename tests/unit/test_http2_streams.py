"""Calls: messages in and out, how they end, and what a bad handler or client can do."""

import logging
import struct

import pytest

from epp_worker.http2 import Http2Limits
from epp_worker.http2.contract import GrpcStream, StreamHandler
from epp_worker.http2.errors import ErrorCode
from tests.http2_peer import (
    ECHO,
    Client,
    Recorder,
    Wire,
    exchange,
    grpc,
    raw,
    request_headers,
    talk,
)

DATA, HEADERS, _, RST = range(4)


def test_echoes_messages_and_ends_with_the_client() -> None:
    """Headers once, every message framed, trailers last; the exact blocks."""
    wire, client = talk()
    stream_id = client.open()
    client.send(stream_id, b"one", b"", b"\x00" * 300)
    exchange(wire, client)
    client.send(stream_id, b"last", end=True)
    exchange(wire, client)
    answer = client.answers[stream_id]
    assert answer.headers == {
        ":status": "200",
        "content-type": "application/grpc",
        "grpc-accept-encoding": "identity,gzip",
    }
    assert answer.messages == [b"one", b"", b"\x00" * 300, b"last"]
    assert answer.trailers == {"grpc-status": "0"}
    assert answer.ended
    assert answer.reset is None
    assert wire.service.last.closed == 1
    assert wire.service.last.aborts == 0
    assert not wire.connection.streams
    assert wire.counters.streams_total[0] == 1


def test_one_read_makes_one_write() -> None:
    """However many calls it carried."""
    wire, client = talk()
    for _ in range(20):
        client.send(client.open(), b"x" * 50, end=True)
    before = wire.transport.writes
    wire.feed(client.out())
    assert wire.transport.writes == before + 1
    client.receive(wire.take())
    assert all(client.answers[stream_id].ended for stream_id in range(1, 40, 2))


def test_sends_outside_a_read_leave_in_one_write_after_the_turn() -> None:
    """A handler that answers later, on several streams."""
    wire, client = talk()
    streams = [client.open() for _ in range(3)]
    exchange(wire, client)
    before = wire.transport.writes
    for handler in wire.service.handlers:
        handler.stream.send(b"a", b"b")
        handler.stream.end(0)
    assert wire.transport.writes == before
    wire.loop.run()
    assert wire.transport.writes == before + 1
    client.receive(wire.take())
    assert all(client.answers[stream_id].messages == [b"a", b"b"] for stream_id in streams)


def test_a_first_response_block_sets_our_table_to_zero_once() -> None:
    """Needed by peers that lower SETTINGS_HEADER_TABLE_SIZE (RFC 9113, 4.3.1), again each time."""
    wire, client = talk()
    for stream_id, begins in ((1, b"\x20\x88"), (3, b"\x88")):
        client.send(client.open(), b"x", end=True)
        headers = [f for f in wire.talk(client.out()) if f[0] == HEADERS]
        assert headers[0][2] == stream_id
        assert headers[0][3].startswith(begins)
    lowered = raw(4, 0, 0, struct.pack(">HI", 1, 0))
    client.send(client.open(), b"x", end=True)
    headers = [f for f in wire.talk(lowered, client.out()) if f[0] == HEADERS]
    assert headers[0][3].startswith(b"\x20")


def test_an_unknown_method_is_unimplemented_in_trailers_only() -> None:
    """One HEADERS frame, status 12, and the method in the message."""
    wire, client = talk()
    stream_id = client.open(request_headers(path="/no.Such/Méthod"), end=True)
    exchange(wire, client)
    answer = client.answers[stream_id]
    assert answer.status == 12
    assert answer.headers["grpc-message"].startswith("unknown method /no.Such/M")
    assert "%C3" in answer.headers["grpc-message"]
    assert answer.ended
    assert wire.counters.streams_total[12] == 1


@pytest.mark.parametrize(
    ("message", "sent"),
    [
        ("plain text, 100 %", "plain text, 100 %25"),
        ("two\nlines", "two%0Alines"),
        ("é", "%C3%A9"),
        ("x" * 5000, "x" * 1024),
    ],
)
def test_status_messages_are_percent_encoded_and_bounded(message: str, sent: str) -> None:
    """As the gRPC wire specification says; in trailers and trailers-only alike."""
    wire, client = talk()
    only, after = client.open(), client.open()
    exchange(wire, client)
    handlers = {handler.stream: handler for handler in wire.service.handlers}
    assert len(handlers) == 2
    wire.service.handlers[0].stream.end(14, message)
    wire.service.handlers[1].stream.send(b"m")
    wire.service.handlers[1].stream.end(14, message)
    wire.loop.run()
    exchange(wire, client)
    assert client.answers[only].headers["grpc-message"] == sent
    assert client.answers[only].status == 14
    assert client.answers[after].trailers == {"grpc-status": "14", "grpc-message": sent}


def test_a_service_may_end_a_call_at_once() -> None:
    """Before it has even returned its handler, which then hears nothing."""
    wire, client = talk()
    late: list[Recorder] = []

    def refuse(stream: GrpcStream) -> StreamHandler:
        stream.end(14, "not mine")
        late.append(Recorder(stream))
        return late[0]

    wire.service.make = refuse
    stream_id = client.open()
    client.send(stream_id, b"x", end=True)
    exchange(wire, client)
    assert client.answers[stream_id].status == 14
    assert (late[0].messages, late[0].closed, late[0].aborts) == ([], 0, 0)


def test_after_the_end_nothing_more_is_sent_or_heard() -> None:
    """Later sends, ends, data and resets do nothing."""
    wire, client = talk()
    stream_id = client.open()
    exchange(wire, client)
    handler = wire.service.last
    handler.stream.end(0)
    handler.stream.send(b"late")
    handler.stream.end(13)
    wire.loop.run()
    exchange(wire, client)
    wire.feed(raw(DATA, 0, stream_id, grpc(b"late")) + raw(RST, 0, stream_id, bytes(4)))
    assert client.answers[stream_id].messages == []
    assert client.answers[stream_id].status == 0
    assert (handler.messages, handler.aborts) == ([], 0)
    assert sum(wire.counters.streams_total) == 1
    assert not wire.connection.streams


def test_an_early_end_sends_no_reset_but_a_client_that_uploads_on_is_stopped() -> None:
    """gRPC clients and Envoy close by themselves, and a RST behind the trailers could overtake
    them in a client's buffers; so NO_ERROR goes only to one that keeps sending."""
    wire, client = talk(Http2Limits(stream_window=100_000))
    client.open()
    exchange(wire, client)
    wire.service.last.stream.end(8, "too much")
    wire.loop.run()
    assert [f[0] for f in wire.frames()] == [HEADERS]
    frame = raw(DATA, 0, 1, bytes(16_000))
    assert wire.talk(frame * 3) == []
    assert wire.talk(frame) == [(RST, 0, 1, bytes(4))]
    assert wire.talk(frame) == []
    assert wire.counters.streams_total[8] == 1


def test_a_call_that_the_client_leaves_half_open_is_swept() -> None:
    """Ended by us, never closed by it: reset (NO_ERROR) after one to two keep-alive rounds."""
    wire, _client = talk()
    wire.feed(_client_open(_client))
    wire.service.last.stream.end(0)
    wire.loop.run()
    wire.take()
    for _ in range(4):
        wire.feed(raw(6, 1, 0, bytes(8)))
        wire.loop.advance(25)
    assert (RST, 0, 1, bytes(4)) in wire.frames()
    assert not wire.connection.streams
    assert wire.service.last.aborts == 0


def _client_open(client: Client) -> bytes:
    client.open()
    return client.out()


def test_reset_and_lost_calls_are_aborted_exactly_once() -> None:
    """By RST_STREAM; the connection's loss then finds nothing."""
    wire, client = talk()
    stream_id = client.open()
    client.send(stream_id, b"x")
    exchange(wire, client)
    client.h2.reset_stream(stream_id, 8)
    exchange(wire, client)
    wire.service.last.stream.send(b"late")
    wire.loop.run()
    assert wire.take() == b""
    wire.lose()
    assert wire.service.last.aborts == 1
    assert wire.counters.streams_total[1] == 1
    assert wire.counters.streams_open == 0


def test_reset_while_the_answer_waits_for_a_window_is_no_abort() -> None:
    """The handler had ended; the queued answer is dropped."""
    wire, client = Wire(), Client(auto=False)
    client.h2.update_settings({4: 10})
    stream_id = client.open()
    client.send(stream_id, b"x" * 100, end=True)
    exchange(wire, client)
    assert not client.answers[stream_id].ended
    assert wire.connection.out.queued == 95
    client.h2.reset_stream(stream_id, 8)
    exchange(wire, client)
    assert wire.connection.out.queued == 0
    assert wire.service.last.aborts == 0
    assert wire.counters.streams_open == 0


class Breaking(Recorder):
    """Raises where it is told to; the text stands for a prompt."""

    where = ""

    def received(self, message: bytes) -> None:
        """Maybe raise."""
        super().received(message)
        if self.where == "received":
            raise ValueError("secret prompt")

    def half_closed(self) -> None:
        """Maybe raise."""
        if self.where == "half_closed":
            raise ValueError("secret prompt")
        super().half_closed()

    def aborted(self) -> None:
        """Maybe raise."""
        super().aborted()
        if self.where == "aborted":
            raise ValueError("secret prompt")


@pytest.mark.parametrize("where", ["service", "received", "half_closed"])
def test_a_handler_that_raises_ends_internal_and_harms_nobody(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Status 13 for that call, one log record without the error's text, the rest goes on."""
    wire, client = talk()
    good = client.open()
    exchange(wire, client)
    made: list[Breaking] = []

    def make(stream: GrpcStream) -> StreamHandler:
        if where == "service":
            raise ValueError("secret prompt")
        made.append(Breaking(stream))
        made[0].where = where
        return made[0]

    wire.service.make = make
    bad = client.open()
    client.send(bad, b"x", end=True)
    client.send(good, b"y", end=True)
    with caplog.at_level(logging.DEBUG, logger="epp_worker"):
        exchange(wire, client)
    assert client.answers[bad].status == 13
    assert client.answers[good].messages == [b"y"]
    assert client.answers[good].status == 0
    assert [handler.aborts for handler in made] == [1] * len(made)
    assert len(caplog.records) == 1
    assert "secret" not in str(caplog.records[0].__dict__)
    assert wire.counters.handler_errors == 1


def test_a_handler_that_raises_in_aborted_harms_nobody() -> None:
    """Counted; the other calls of the connection are aborted all the same."""
    wire, client = talk()

    def make(stream: GrpcStream) -> StreamHandler:
        handler = Breaking(stream)
        handler.where = "aborted"
        return handler

    wire.service.make = make
    for _ in range(3):
        client.open()
    exchange(wire, client)
    wire.lose()
    assert wire.counters.handler_errors == 3
    assert wire.counters.streams_open == 0


def test_streams_beyond_the_limit_are_refused() -> None:
    """REFUSED_STREAM: safe to retry. A finished call makes room."""
    wire, client = talk(Http2Limits(max_streams=2))
    client.h2.remote_settings[3] = 100  # a client that does not keep to our limit
    client.h2.remote_settings.acknowledge()
    streams = [client.open() for _ in range(3)]
    exchange(wire, client)
    assert client.answers[streams[2]].reset == ErrorCode.REFUSED_STREAM
    assert wire.counters.streams_refused == 1
    assert wire.counters.streams_open == 2
    client.send(streams[0], b"x", end=True)
    exchange(wire, client)
    fourth = client.open()
    client.send(fourth, b"y", end=True)
    exchange(wire, client)
    assert client.answers[fourth].status == 0


def test_data_on_closed_streams_still_counts_for_the_connection() -> None:
    """Else the two sides' idea of the connection's window drifts apart."""
    wire, client = talk(Http2Limits(connection_window=100_000, stream_window=65_535))
    client.open()
    exchange(wire, client)
    client.h2.reset_stream(1, 8)
    exchange(wire, client)
    frames = wire.talk(*[raw(DATA, 0, 1, bytes(16_000)) for _ in range(4)])
    assert (8, 0, 0, struct.pack(">I", 64_000)) in frames
    assert frames.count((RST, 0, 1, struct.pack(">I", ErrorCode.STREAM_CLOSED))) == 1
    assert not wire.closed()


def test_frames_after_the_client_has_closed_its_side_reset_the_stream() -> None:
    """DATA or HEADERS after END_STREAM: STREAM_CLOSED, the call aborted, the connection fine."""
    wire, client = talk()
    wire.service.make = lambda stream: _silent(wire, stream)
    client.open(end=True)
    exchange(wire, client)
    assert wire.talk(raw(DATA, 0, 1, b"x")) == [
        (RST, 0, 1, struct.pack(">I", ErrorCode.STREAM_CLOSED))
    ]
    assert wire.service.last.aborts == 1


def _silent(wire: Wire, stream: GrpcStream) -> StreamHandler:
    del stream
    wire.service.last.answers = False
    return wire.service.last


def test_client_trailers_half_close() -> None:
    """HEADERS with END_STREAM on an open call; without it, or with pseudo headers: reset."""
    wire, client = talk()
    good, bad = client.open(), client.open()
    client.send(good, b"x")
    client.h2.send_headers(good, [("x-trailer", "1")], end_stream=True)
    exchange(wire, client)
    assert client.answers[good].status == 0
    wire.feed(raw(HEADERS, 4, bad, b"\x00\x01x\x011"))
    assert (RST, 0, bad, b"\0\0\0\x01") in wire.frames()
    assert wire.service.last.aborts == 1
    assert wire.service.last.stream.path == ECHO

"""What gRPC adds to HTTP/2: deadlines, compressed messages, and refusals in words."""

import gzip
from urllib.parse import unquote

import pytest

from epp_worker.http2 import Http2Limits
from epp_worker.http2.deadlines import TICK_SECONDS
from tests.http2_peer import ECHO, Client, Wire, exchange, grpc, request_headers

MIB = 1024 * 1024


def begun(
    *extra: tuple[str, str], limits: Http2Limits | None = None, path: str = ECHO
) -> tuple[Wire, Client, int]:
    """A call with these headers more."""
    wire, client = Wire(limits=limits), Client()
    exchange(wire, client)
    stream_id = client.open(request_headers(path=path, extra=extra))
    exchange(wire, client)
    return wire, client, stream_id


def packed(message: bytes) -> bytes:
    """A compressed gRPC message with its prefix."""
    data = gzip.compress(message)
    return b"\1" + len(data).to_bytes(4, "big") + data


def said(client: Client, stream_id: int) -> str:
    """`grpc-message`, decoded."""
    answer = client.answers[stream_id]
    return unquote(answer.trailers.get("grpc-message", answer.headers.get("grpc-message", "")))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250m", 0.25), ("2S", 2.0), ("1M", 60.0), ("1H", 3600.0), ("500000u", 0.5)],
)
def test_a_call_ends_with_its_deadline(text: str, seconds: float) -> None:
    """Not a moment before, at most a tick after: DEADLINE_EXCEEDED, and the handler is aborted."""
    limits = Http2Limits(keepalive_seconds=0)
    wire, client, stream_id = begun(("grpc-timeout", text), limits=limits)
    wire.loop.advance(seconds - 0.001)
    exchange(wire, client)
    assert client.answers[stream_id].status is None
    wire.loop.advance(0.001 + 2 * TICK_SECONDS)
    exchange(wire, client)
    assert client.answers[stream_id].status == 4
    assert wire.service.last.aborts == 1
    assert len(wire.shared.deadlines) == 0


def test_a_call_that_ends_in_time_leaves_no_deadline_behind() -> None:
    """Neither by its own end nor by a reset."""
    wire, client, stream_id = begun(("grpc-timeout", "1H"))
    other = client.open(request_headers(extra=[("grpc-timeout", "1H")]))
    exchange(wire, client)
    assert len(wire.shared.deadlines) == 2
    client.send(stream_id, b"x", end=True)
    client.h2.reset_stream(other)
    exchange(wire, client)
    assert len(wire.shared.deadlines) == 0
    wire.loop.advance(3601)
    assert wire.counters.streams_total[4] == 0


def test_many_deadlines_of_one_moment_are_told_in_many_turns() -> None:
    """A thousand calls that end at once do not stop everybody else; each ends all the same."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    for _ in range(1000):
        client.open(request_headers(extra=[("grpc-timeout", "1S")]))
    exchange(wire, client)
    wire.loop.advance(1.1)
    exchange(wire, client)
    assert wire.counters.streams_total[4] == 1000
    assert {answer.status for key, answer in client.answers.items() if key} == {4}


@pytest.mark.parametrize(("text", "status"), [("0S", 4), ("5", 13), ("-1S", 13), ("9x", 13)])
def test_a_deadline_that_is_past_or_no_deadline(text: str, status: int) -> None:
    """Answered at once; no handler is made."""
    wire, client, stream_id = begun(("grpc-timeout", text))
    assert client.answers[stream_id].status == status
    assert not wire.service.handlers


def test_takes_gzip_beside_plain_messages() -> None:
    """Each message says for itself; what is taken is advertised."""
    wire, client, stream_id = begun(("grpc-encoding", "gzip"))
    body = packed(b"one" * 500) + grpc(b"two") + packed(b"")
    client.h2.send_data(stream_id, body[:20])
    client.h2.send_data(stream_id, body[20:], end_stream=True)
    exchange(wire, client)
    assert wire.service.last.messages == [b"one" * 500, b"two", b""]
    answer = client.answers[stream_id]
    assert answer.status == 0
    assert answer.headers["grpc-accept-encoding"] == "identity,gzip"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (packed(bytes(100)), 0),
        (packed(bytes(101)), 8),
        (packed(bytes(50 * MIB)), 8),
        (b"\1\0\0\0\3abc", 13),
        (b"\1\0\0\0\x10" + gzip.compress(b"x" * 50)[:16], 13),
        (b"\1" + (2 * len(gzip.compress(b"x"))).to_bytes(4, "big") + gzip.compress(b"x") * 2, 13),
    ],
    ids=["fits", "one too much", "bomb", "no gzip", "cut short", "two members"],
)
def test_inflates_no_more_than_a_message_may_have(body: bytes, status: int) -> None:
    """A bomb is RESOURCE_EXHAUSTED, never unpacked beyond the bound; rubbish is INTERNAL."""
    limits = Http2Limits(max_message_bytes=100 if len(body) < 100 else 60_000)
    if status == 0 or body == packed(bytes(101)):
        limits = Http2Limits(max_message_bytes=100)
    wire, client, stream_id = begun(("grpc-encoding", "gzip"), limits=limits)
    for at in range(0, len(body), 16_384):
        client.h2.send_data(stream_id, body[at : at + 16_384])
    client.h2.end_stream(stream_id)
    exchange(wire, client)
    assert client.answers[stream_id].status == status


@pytest.mark.parametrize(("size", "status"), [(MIB, 0), (MIB + 1, 8)])
def test_inflates_little_to_a_mebibyte_at_most(size: int, status: int) -> None:
    """A kilobyte of zeros costs the loop no more than 3 ms, whatever messages may come to."""
    wire, client, stream_id = begun(("grpc-encoding", "gzip"))
    wire.service.last.answers = False
    client.h2.send_data(stream_id, packed(bytes(size)))
    exchange(wire, client)
    assert client.answers[stream_id].status == (status or None)
    assert len(wire.service.last.messages) == (not status)


def test_large_inflated_messages_take_turns() -> None:
    """After a mebibyte of inflated messages the others have their turn; none is lost."""
    wire, client, stream_id = begun(("grpc-encoding", "gzip"))
    body = packed(bytes(MIB)) * 5
    client.h2.send_data(stream_id, body, end_stream=True)
    wire.service.last.answers = False
    wire.connection.data_received(client.out())
    assert len(wire.service.last.messages) == 1
    wire.loop.run()
    assert [len(each) for each in wire.service.last.messages] == [MIB] * 5
    assert wire.service.last.closed == 1


def test_an_unknown_encoding_is_named_with_those_that_are_known() -> None:
    """UNIMPLEMENTED, as trailers only, with the list to choose from."""
    wire, client, stream_id = begun(("grpc-encoding", "zstd"))
    answer = client.answers[stream_id]
    assert answer.status == 12
    assert answer.headers["grpc-accept-encoding"] == "identity,gzip"
    assert said(client, stream_id) == "grpc-encoding zstd is none of identity, gzip"
    assert answer.ended
    assert not wire.service.handlers


def test_an_unknown_method_is_named_in_percent_encoding() -> None:
    """UNIMPLEMENTED; what is not printable ASCII arrives as UTF-8 all the same."""
    _, client, stream_id = begun(path="/no.Such/Thing%")
    assert client.answers[stream_id].status == 12
    assert said(client, stream_id) == "unknown method /no.Such/Thing%"
    wire, client, stream_id = begun()
    wire.service.last.stream.end(13, "Prüfung 100 % 失敗")
    wire.loop.run()
    exchange(wire, client)
    assert client.answers[stream_id].headers["grpc-message"].isascii()
    assert said(client, stream_id) == "Prüfung 100 % 失敗"


def test_a_wrong_content_type_is_answered_415_in_words() -> None:
    """HTTP's own answer, with a body that says what is wanted; no stream stays."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    headers = [*request_headers()[:4], ("content-type", "application/json")]
    stream_id = client.open(headers, end=True)
    exchange(wire, client)
    answer = client.answers[stream_id]
    assert answer.headers[":status"] == "415"
    assert b"application/grpc" in answer.body
    assert answer.ended
    assert not wire.connection.streams
    assert wire.counters.http_refused == 1


def test_a_head_request_gets_no_body() -> None:
    """As HTTP wants it."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    stream_id = client.open(request_headers(method="HEAD"), end=True)
    exchange(wire, client)
    answer = client.answers[stream_id]
    assert (answer.headers[":status"], answer.body, answer.ended) == ("405", b"", True)


@pytest.mark.parametrize(
    ("length", "body", "code"), [(5, 5, None), (5, 4, 1), (4, 5, 1), (1, 0, 1)]
)
def test_a_body_is_as_long_as_its_content_length(length: int, body: int, code: int | None) -> None:
    """RFC 9113, 8.1.1: otherwise the request is malformed, also where it is refused anyway."""
    wire, client = Wire(), Client()
    exchange(wire, client)
    stream_id = client.open(request_headers(extra=[("content-length", str(length))]))
    client.h2.send_data(stream_id, grpc(b"")[:body], end_stream=True)
    exchange(wire, client)
    assert client.answers[stream_id].reset == code

"""Messages of calls however they were cut: whole, bounded, or the end of the call."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.http2 import Http2Limits
from epp_worker.http2.messages import Assembler, MessageBudget
from tests.http2_peer import Client, Wire, exchange, grpc, request_headers, talk


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\1\0\0\0\1x", 13),
        (b"\7\0\0\0\1x", 13),
        (b"\0\0\0\0\x65", 8),
        (b"\1", 13),
        (grpc(b"ok") + b"\0\0\0", 13),
    ],
)
def test_bad_messages_end_the_call(body: bytes, status: int) -> None:
    """Compressed without a word, no gRPC framing, or cut short: INTERNAL. Too large:
    RESOURCE_EXHAUSTED, before its bytes are held. The handler is aborted once."""
    wire, client = talk(Http2Limits(max_message_bytes=100))
    stream_id = client.open()
    client.h2.send_data(stream_id, body, end_stream=True)
    exchange(wire, client)
    assert client.answers[stream_id].status == status
    assert wire.service.last.aborts == 1
    assert wire.shared.budget.held == 0
    assert wire.counters.streams_total[status] == 1


def test_unfinished_messages_of_all_calls_share_a_budget() -> None:
    """When it is full, the call that has waited longest ends RESOURCE_EXHAUSTED, not the newcomer;
    ended calls give their bytes back."""
    wire, client = talk(Http2Limits(max_partial_bytes=1200))
    half = grpc(bytes(600))[:405]
    moving, idle, new = client.open(), client.open(), client.open()
    client.h2.send_data(moving, half)
    client.h2.send_data(idle, half)
    client.h2.send_data(moving, grpc(bytes(600))[405:410])
    client.h2.send_data(new, half)
    exchange(wire, client)
    assert client.answers[idle].status == 8
    assert wire.service.handlers[1].aborts == 1
    assert wire.shared.budget.held == 405 + 5 + 405
    client.h2.send_data(moving, grpc(bytes(600))[410:], end_stream=True)
    client.h2.send_data(new, grpc(bytes(600))[405:], end_stream=True)
    exchange(wire, client)
    assert client.answers[moving].messages == client.answers[new].messages == [bytes(600)]
    assert wire.shared.budget.held == 0
    assert not wire.shared.budget.waiting


def test_one_call_alone_may_not_pass_the_budget() -> None:
    """There is nobody else to give room: it ends itself."""
    wire, client = talk(Http2Limits(max_partial_bytes=1000))
    stream_id = client.open()
    client.h2.send_data(stream_id, grpc(bytes(2000))[:900])
    client.h2.send_data(stream_id, grpc(bytes(2000))[900:1800])
    exchange(wire, client)
    assert client.answers[stream_id].status == 8
    assert wire.shared.budget.held == 0
    assert not wire.shared.budget.waiting


@settings(max_examples=80, deadline=None)
@given(
    messages=st.lists(st.binary(max_size=40), max_size=8),
    cuts=st.lists(st.integers(0, 400), max_size=12),
)
def test_messages_come_out_whole_however_they_were_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    """Any chunking gives the same messages, and holds nothing at the end."""
    data = grpc(*messages)
    budget = MessageBudget(1000, 1000)
    assembler = Assembler(budget)
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    found: list[bytes] = []
    for start, end in itertools.pairwise(edges):
        found += assembler.feed(data, start, end)
    assert found == messages
    assert not assembler.partial
    assert budget.held == 0


def _traffic() -> bytes:
    """A client's side of several interleaved calls, all valid."""
    client = Client()
    one = client.open(request_headers(extra=[("x-long", "v" * 200)]))
    two = client.open()
    client.send(one, b"a" * 70, b"b")
    client.send(two, b"")
    client.h2.ping(b"abcdefgh")
    three = client.open(request_headers(path="/no"), end=True)
    client.send(two, b"c" * 300, end=True)
    client.h2.increment_flow_control_window(5000)
    client.send(one, b"d", end=True)
    client.h2.reset_stream(client.open(), 8)
    assert three == 5
    return client.out()


TRAFFIC = _traffic()


def _answers(pieces: list[bytes]) -> tuple[list[object], int]:
    wire = Wire()
    frames = wire.talk(*pieces)
    streams = sorted((f for f in frames if f[2]), key=lambda f: f[2])
    return [streams, [h.messages for h in wire.service.handlers]], len(wire.connection.streams)


WHOLE = _answers([TRAFFIC])


@settings(max_examples=60, deadline=None)
@given(cuts=st.lists(st.integers(1, len(TRAFFIC) - 1), max_size=30))
def test_any_chunking_of_valid_traffic_gives_the_same_answers(cuts: list[int]) -> None:
    """The same frames per stream, the same messages, nothing left over."""
    edges = sorted({0, len(TRAFFIC), *cuts})
    pieces = [TRAFFIC[a:b] for a, b in itertools.pairwise(edges)]
    assert _answers(pieces) == WHOLE
    assert WHOLE[1] == 0


def test_the_same_traffic_byte_by_byte() -> None:
    """The worst chunking of all."""
    assert _answers([TRAFFIC[at : at + 1] for at in range(len(TRAFFIC))]) == WHOLE

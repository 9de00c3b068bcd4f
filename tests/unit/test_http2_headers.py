"""HPACK state, the cache of whole blocks, and what makes a header list a gRPC request."""

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.http2.errors import ConnectionFault, ErrorCode
from epp_worker.http2.headers import HeadCache, HeadDecoder, RequestHead
from tests.http2_peer import (
    ECHO,
    Client,
    Wire,
    exchange,
    raw,
    request_headers,
)

POOL_A = "outbound|9002||epp-a.team.svc.cluster.local"
POOL_B = "outbound|9002||epp-b.team.svc.cluster.local"


def decoder(cache: HeadCache | None = None) -> HeadDecoder:
    """A connection's decoder, as after connecting."""
    return HeadDecoder(HeadCache() if cache is None else cache, 65536)


def acknowledge(settling: HeadDecoder) -> None:
    """The peer acknowledges the opening SETTINGS, and those of the header table."""
    settling.announce()
    settling.acknowledged()
    settling.acknowledged()


def head(fields: list[tuple[str, str]]) -> RequestHead:
    """The verdict on a header list."""
    return RequestHead((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


def test_a_peer_that_indexes_before_its_ack_never_gets_another_streams_authority() -> None:
    """Two connections send equal bytes; on one they mean something else, because it had filled
    its dynamic table before it acknowledged our size 0. The cache must not mix them up."""
    cache = HeadCache()
    late, early = decoder(cache), decoder(cache)
    encoder_a, encoder_b = hpack.Encoder(), hpack.Encoder()
    first_a = encoder_a.encode(request_headers(authority=POOL_A))
    first_b = encoder_b.encode(request_headers(authority=POOL_B))
    assert late.decode(first_a).authority == POOL_A
    assert early.decode(first_b).authority == POOL_B
    # Fully indexed now: the very same bytes on both connections.
    again_a = encoder_a.encode(request_headers(authority=POOL_A))
    again_b = encoder_b.encode(request_headers(authority=POOL_B))
    assert again_a == again_b
    assert late.decode(again_a).authority == POOL_A
    assert early.decode(again_b).authority == POOL_B
    assert len(cache) == 0

    acknowledge(early)
    assert not early.stateless  # acknowledged, but its next block may still use its table
    encoder_b.header_table_size = 0
    for _ in range(2):
        assert early.decode(encoder_b.encode(request_headers(authority=POOL_B))).authority == POOL_B
    assert len(cache) == 1
    for _ in range(2):
        block = encoder_a.encode(request_headers(authority=POOL_A))
        assert late.decode(block).authority == POOL_A
    assert len(cache) == 1


def test_a_cached_block_never_skips_an_insert() -> None:
    """A block that another connection cached still fills this one's table."""
    cache = HeadCache()
    settled, young = decoder(cache), decoder(cache)
    settled.decode(b"\x20")
    acknowledge(settled)
    literal = hpack.Encoder().encode(request_headers(authority=POOL_A), huffman=False)
    assert settled.decode(literal).authority == POOL_A
    assert settled.decode(literal).authority == POOL_A
    encoder = hpack.Encoder()
    assert encoder.encode(request_headers(authority=POOL_A), huffman=False) == literal
    assert young.decode(literal).authority == POOL_A
    indexed = encoder.encode(request_headers(authority=POOL_A), huffman=False)
    assert len(indexed) == 6
    assert young.decode(indexed).authority == POOL_A
    with pytest.raises(ConnectionFault):
        settled.decode(indexed)


def test_the_same_over_two_whole_connections() -> None:
    """Streams of two `h2` clients, one of which sends its calls before it has read our SETTINGS."""
    wire = Wire()
    eager, polite = Client(), Client()
    for authority in (POOL_A, POOL_B, POOL_A):
        eager.open(request_headers(authority=authority))
    first = wire.connection, wire.transport
    exchange(wire, eager)
    for authority in (POOL_B, POOL_A, POOL_B):
        eager.open(request_headers(authority=authority))
    exchange(wire, eager)
    wire.connect()
    exchange(wire, polite)
    for authority in (POOL_B, POOL_A, POOL_A, POOL_B):
        polite.open(request_headers(authority=authority))
        exchange(wire, polite)
    assert wire.connection.decoder.stateless
    assert first[0].decoder.stateless
    seen = [handler.stream.authority for handler in wire.service.handlers]
    a, b = POOL_A, POOL_B
    assert seen == [a, b, a, b, a, b, b, a, a, b]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_authority_is_always_right_whatever_the_peers_do_with_their_tables(
    data: st.DataObject,
) -> None:
    """Three connections on one cache; each may index, acknowledge and shrink when it likes."""
    cache = HeadCache(entries=2)
    peers = [(hpack.Encoder(), decoder(cache)) for _ in range(3)]
    acked = [False] * 3
    for _ in range(data.draw(st.integers(1, 25))):
        index = data.draw(st.integers(0, 2))
        encoder, ours = peers[index]
        if not acked[index] and data.draw(st.booleans()):
            acked[index] = True
            acknowledge(ours)
            if data.draw(st.booleans()):
                encoder.header_table_size = 0
        authority = data.draw(st.sampled_from([POOL_A, POOL_B, "x.y:1"]))
        block = encoder.encode(request_headers(authority=authority))
        assert ours.decode(block).authority == authority


def test_a_size_update_above_zero_after_the_ack_is_an_error() -> None:
    """Both at once and after the table had settled."""
    fresh = decoder()
    acknowledge(fresh)
    with pytest.raises(ConnectionFault) as caught:
        fresh.decode(b"\x3f\x01")
    assert caught.value.code == ErrorCode.COMPRESSION_ERROR
    settled = decoder()
    acknowledge(settled)
    settled.decode(b"\x20")
    assert settled.stateless
    with pytest.raises(ConnectionFault):
        settled.decode(b"\x21")


def test_a_header_list_over_the_limit_ends_the_connection() -> None:
    """A small block may unfold to a large list: counted unfolded."""
    encoder = hpack.Encoder()
    bomb = encoder.encode([("x", "y" * 2000)]) + b"\xbe" * 100
    with pytest.raises(ConnectionFault) as caught:
        decoder().decode(bomb)
    assert caught.value.code == ErrorCode.ENHANCE_YOUR_CALM


def test_continuations_are_bounded() -> None:
    """In number and in bytes; a block in pieces is as good as a whole one."""
    block = hpack.Encoder().encode(request_headers(extra=[("x", "y" * 50)]))
    wire, client = Wire(), Client()
    exchange(wire, client)
    wire.feed(raw(1, 0, 1, block[:10]))
    for at in range(10, len(block)):
        if at - 10 < 30:
            wire.feed(raw(9, 0, 1, block[at : at + 1]))
    wire.feed(raw(9, 4, 1, block[40:]))
    assert wire.service.last.stream.headers["x"] == "y" * 50
    wire.feed(raw(1, 0, 3, b""))
    wire.feed(raw(9, 0, 3) * 33)
    assert wire.counters.connection_faults == {"ENHANCE_YOUR_CALM": 1}
    wire.connect()
    exchange(wire, Client())
    wire.feed(raw(1, 0, 1, bytes(16000)) + raw(9, 0, 1, bytes(16000)) * 4)
    assert wire.counters.connection_faults == {"ENHANCE_YOUR_CALM": 2}


def test_the_cache_forgets_what_nobody_asks_for() -> None:
    """Never more than two generations; what is asked for again stays."""
    cache = HeadCache(entries=3, max_block=8)
    kept = head(request_headers())
    cache.put(b"kept", kept)
    for number in range(100):
        cache.put(b"%d" % number, kept)
        assert cache.get(b"kept") is kept
        assert len(cache) <= 6
    assert cache.get(b"0") is None
    cache.put(b"too long to keep", kept)
    assert cache.get(b"too long to keep") is None


def test_reads_authority_path_and_headers() -> None:
    """As sent; of equal names the last wins; the mapping cannot be changed."""
    read = head(request_headers(extra=[("x", "1"), ("x", "2")]))
    assert (read.authority, read.path) == ("epp.ns.svc:9002", ECHO)
    assert read.headers["x"] == "2"
    assert not read.malformed
    assert not read.refusal
    with pytest.raises(TypeError):
        read.headers["x"] = "3"  # type: ignore[index]
    without = [field for field in request_headers() if field[0] != ":authority"]
    assert head(without).authority == ""
    assert not head(without).malformed


@pytest.mark.parametrize(
    "fields",
    [
        request_headers()[1:],
        request_headers()[:1] + request_headers()[2:],
        request_headers()[:2] + request_headers()[3:],
        request_headers(path=""),
        [*request_headers(), (":method", "POST")],
        [*request_headers()[:3], (":method", "POST"), *request_headers()[3:]],
        [(":status", "200"), *request_headers()],
        [*request_headers(), ("Upper", "x")],
        [*request_headers(), ("", "x")],
        [*request_headers(), ("sp ace", "x")],
        [*request_headers(), ("connection", "close")],
        [*request_headers(), ("transfer-encoding", "chunked")],
        [*request_headers()[:-1], ("te", "gzip")],
        [*request_headers(), ("x", "a\r\nb: c")],
        [*request_headers(), ("x", "a\0b")],
        [*request_headers(authority="a\nb")],
        [*request_headers(), ("x", " padded")],
    ],
)
def test_malformed_requests_are_reset(fields: list[tuple[str, str]]) -> None:
    """RFC 9113, 8.1.1: PROTOCOL_ERROR on the stream, and the connection goes on."""
    assert head(fields).malformed
    wire, client = Wire(), Client()
    exchange(wire, client)
    wire.take()
    block = hpack.Encoder().encode(fields)
    assert wire.talk(raw(1, 4, 1, block)) == [(3, 0, 1, b"\0\0\0\x01")]
    assert not wire.service.handlers
    assert wire.counters.streams_refused == 1
    assert not wire.closed()


@pytest.mark.parametrize(
    ("content_type", "grpc"),
    [
        ("application/grpc", True),
        ("application/grpc+proto", True),
        ("application/grpc;charset=utf-8", True),
        ("application/grpc-web", False),
        ("application/json", False),
        ("text/application/grpc", False),
        ("", False),
    ],
)
def test_content_type_decides_whether_it_is_grpc(content_type: str, grpc: bool) -> None:
    """Others get 415 with END_STREAM, as the gRPC specification asks."""
    fields = [*request_headers()[:4], ("content-type", content_type)]
    wire, client = Wire(), Client()
    stream_id = client.open(fields, end=True)
    exchange(wire, client)
    answer = client.answers[stream_id]
    assert answer.ended
    assert answer.headers[":status"] == ("200" if grpc else "415")
    assert wire.counters.http_refused == (0 if grpc else 1)


def test_a_plain_get_is_answered_405() -> None:
    """Probes and browsers: a small answer, no service touched."""
    wire, client = Wire(), Client()
    stream_id = client.open(request_headers(method="GET"), end=True)
    exchange(wire, client)
    answer = client.answers[stream_id]
    assert answer.headers == {
        ":status": "405",
        "allow": "POST",
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(answer.body)),
    }
    assert b"gRPC" in answer.body
    assert answer.ended
    assert not wire.service.handlers
    assert not wire.connection.streams

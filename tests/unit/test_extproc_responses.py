"""The response side of the ext_proc session."""

import gzip

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

from tests.extproc_world import CHAT, A, B, World, kinds, streamed
from tests.unit import extproc_messages as make


@pytest.fixture
def world() -> World:
    return World()


def test_reply_kind_mirrors_the_message(world: World) -> None:
    """Each phase is answered in kind, unknown ones not at all (openkruise/agents#834)."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(CHAT, end_of_stream=True))
    assert kinds(session.receive(make.response_headers())) == ["response_headers"]
    assert kinds(session.receive(make.response_body(b"x"))) == ["response_body"]
    assert not session.receive(ProcessingRequest().SerializeToString())
    assert not session.receive(b"\xea\x3f\x03abc")
    assert kinds(session.receive(make.trailers("response"))) == ["response_trailers"]
    assert session.ended is None


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (make.response_headers({":status": "400"}, end_of_stream=True), "response_headers"),
        (make.response_body(b"oops", end_of_stream=True), "response_body"),
        (make.trailers("response"), "response_trailers"),
        (make.trailers("request"), "request_trailers"),
    ],
)
def test_response_phase_first(world: World, first: bytes, kind: str) -> None:
    """The gateway's own reply opens the stream: a no-op answer, nothing counted (envoy#29440)."""
    session = world.session()
    assert kinds(session.receive(first)) == [kind]
    session.half_closed()
    assert world.counts.outcomes == []
    assert world.counts.ends == []
    world.assert_nothing_held()


def test_local_reply_in_the_middle_of_a_request(world: World) -> None:
    """The gateway gave up on the request: its body is let go and later messages are ignored."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(CHAT[:9]))
    assert kinds(session.receive(make.response_headers({":status": "408"}))) == ["response_headers"]
    world.assert_nothing_held()
    assert not session.receive(make.request_body(CHAT[9:], end_of_stream=True))
    assert world.counts.outcomes == []


def test_body_before_headers(world: World) -> None:
    """A gateway that hides the headers cannot be given a pick: INVALID_ARGUMENT, never a guess."""
    session = world.session()
    assert not session.receive(make.request_body(CHAT, end_of_stream=True))
    assert session.ended is not None
    assert session.ended.code == 3


def test_response_end_by_trailers(world: World) -> None:
    """gRPC upstreams never set end_of_stream: the trailers end it (inference-extension#2510)."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(CHAT, end_of_stream=True))
    session.receive(make.response_headers({":status": "200", "content-type": "application/grpc"}))
    for _ in range(3):
        assert streamed(session.receive(make.response_body(b"x")), "response") == (b"x", [False])
    assert world.inflight() == 1
    session.receive(make.trailers("response", {"grpc-status": "0"}))
    assert world.inflight() == 0
    assert world.counts.ends == [True]


def test_response_body_end_mark_once(world: World) -> None:
    """Byte-exact echo with the end mark once and last (inference-extension#3028)."""
    session = world.session()
    session.receive(make.response_headers())
    assert streamed(session.receive(make.response_body(b"abc")), "response") == (b"abc", [False])
    out = session.receive(make.response_body(b"", end_of_stream=True))
    assert streamed(out, "response") == (b"", [True])
    assert not session.receive(make.response_body(b"late", end_of_stream=True))


def test_large_response_passes_chunk_by_chunk(world: World) -> None:
    """Each message out as it came in, cut to 62,000 bytes; the side copy is bounded
    (inference-extension#483)."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(CHAT, end_of_stream=True))
    session.receive(make.response_headers())
    piece = bytes(range(256)) * 256
    for _ in range(40):
        out = session.receive(make.response_body(piece))
        assert streamed(out, "response") == (piece, [False, False])
    session.receive(make.response_body(b"", end_of_stream=True))
    assert world.counts.tokens == []
    world.assert_nothing_held()


def test_compressed_response_is_left_alone(world: World) -> None:
    """Bytes pass; no usage is read and no fault counted (ai-gateway#2553)."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(CHAT, end_of_stream=True))
    session.receive(make.response_headers({":status": "400", "content-encoding": "gzip"}))
    body = gzip.compress(b'{"usage":{"prompt_tokens":1}}')
    for part, end in ((body[:11], False), (body[11:], True)):
        out = session.receive(make.response_body(part, end_of_stream=end))
        assert streamed(out, "response") == (part, [end])
    assert world.counts.tokens == []
    assert world.counts.faults == 0
    assert world.counts.statuses == [400]


def test_served_endpoint_moves_the_count() -> None:
    """The gateway retried elsewhere: the open request counts there (ai-dynamo/dynamo#14693)."""
    world = World([A, B])
    session = world.session()
    session.receive(make.request_headers(subset=[A]))
    session.receive(make.request_body(CHAT, end_of_stream=True))
    assert world.pools[0].inflight() == {A: 1, B: 0}
    session.receive(make.response_headers(served=B))
    assert world.pools[0].inflight() == {A: 0, B: 1}
    assert world.pools[0].mismatches == 1
    session.receive(make.response_body(b"", end_of_stream=True))
    world.assert_nothing_held()


def test_served_by_a_stranger() -> None:
    """An endpoint that is not ours is counted as a mismatch and changes nothing."""
    world = World([A])
    session = world.session()
    session.receive(make.request_headers(end_of_stream=True))
    session.receive(make.response_headers(served="10.7.7.7:1"))
    assert world.pools[0].inflight() == {A: 1}
    assert world.pools[0].mismatches == 1
    session.aborted()
    world.assert_nothing_held()

"""The ext_proc session in other body modes than FULL_DUPLEX_STREAMED, and without any."""

import pytest

from epp_worker.extproc.endings import Status
from tests.extproc_world import CHAT, MIB, A, World, destination, kinds, replies
from tests.unit import extproc_messages as make


@pytest.fixture
def world() -> World:
    return World()


def test_buffered(world: World) -> None:
    """CONTINUE for the headers, the pick on the body reply, no body in it (llm-d-router#858)."""
    session = world.session()
    out = session.receive(make.request_headers(mode=make.BUFFERED))
    assert kinds(out) == ["request_headers"]
    assert not replies(out)[0].request_headers.response.clear_route_cache
    out = session.receive(make.request_body(CHAT, end_of_stream=True))
    assert kinds(out) == ["request_body"]
    assert destination(replies(out)[0]) == A
    assert not replies(out)[0].request_body.response.HasField("body_mutation")
    assert kinds(session.receive(make.trailers("request"))) == ["request_trailers"]
    assert kinds(session.receive(make.response_headers())) == ["response_headers"]
    out = session.receive(make.response_body(b"abc", end_of_stream=True))
    assert kinds(out) == ["response_body"]
    assert not replies(out)[0].response_body.response.HasField("body_mutation")
    world.assert_nothing_held()


def test_buffered_body_before_trailers(world: World) -> None:
    """A buffered body whose end mark is on the trailers is whole: decided at once."""
    session = world.session()
    session.receive(make.request_headers(mode=make.BUFFERED))
    assert kinds(session.receive(make.request_body(CHAT))) == ["request_body"]
    assert kinds(session.receive(make.trailers("request"))) == ["request_trailers"]


def test_buffered_large_and_malformed() -> None:
    """5 MiB in one message is fine; malformed is 400 without a Continue for the body."""
    world = World()
    for body, answer in [
        (b'{"model":"m","x":"%s"}' % (b"x" * 5 * MIB), "request_body"),
        (b"{", "immediate_response"),
    ]:
        session = world.session()
        session.receive(make.request_headers(mode=make.BUFFERED))
        assert kinds(session.receive(make.request_body(body, end_of_stream=True))) == [answer]


def test_partly_buffered(world: World) -> None:
    """BUFFERED_PARTIAL may cut the body: one pool routes it all the same."""
    session = world.session()
    assert kinds(session.receive(make.request_headers(mode=make.BUFFERED_PARTIAL)))
    assert destination(replies(session.receive(make.request_body(b'{"model":"m","x')))[0]) == A


@pytest.mark.parametrize("mode", [make.NONE, make.STREAMED])
def test_streamed_and_none(world: World, mode: int) -> None:
    """The pick is on the headers reply; each body message gets a CONTINUE."""
    session = world.session()
    out = session.receive(make.request_headers(mode=mode))
    assert kinds(out) == ["request_headers"]
    assert destination(replies(out)[0]) == A
    assert not session.waiting
    assert kinds(session.receive(make.request_body(b"ab"))) == ["request_body"]
    assert kinds(session.receive(make.request_body(b"", end_of_stream=True))) == ["request_body"]
    assert world.inflight() == 1


def test_grpc_mode_is_refused(world: World) -> None:
    """A mode that is not served ends the stream at once with a clear status."""
    session = world.session()
    assert not session.receive(make.request_headers(mode=make.GRPC))
    assert session.ended is not None
    assert session.ended.code == 12


def test_unknown_mode_with_body(world: World) -> None:
    """As FULL_DUPLEX_STREAMED: headers, one body message, half-close, as NGINX sends it."""
    session = world.session()
    assert not session.receive(make.request_headers({}, mode=None))
    assert session.waiting
    out = session.receive(make.request_body(CHAT, end_of_stream=True))
    assert not session.waited()
    assert kinds(out) == ["request_headers", "request_body"]
    assert not session.half_closed()
    assert session.ended == Status(0, "")
    assert world.counts.ends == [True]
    world.assert_nothing_held()


def test_unknown_mode_and_silence(world: World) -> None:
    """A gateway that waits gets its CONTINUE and is served as BUFFERED from then on."""
    session = world.session()
    session.receive(make.request_headers(mode=None))
    out = session.waited()
    assert kinds(out) == ["request_headers"]
    assert not session.waiting
    assert not session.waited()
    out = session.receive(make.request_body(CHAT, end_of_stream=True))
    assert kinds(out) == ["request_body"]
    assert destination(replies(out)[0]) == A


def test_known_mode_never_waits(world: World) -> None:
    """With protocol_config there is nothing to guess."""
    session = world.session()
    session.receive(make.request_headers())
    assert not session.waiting
    assert not session.waited()

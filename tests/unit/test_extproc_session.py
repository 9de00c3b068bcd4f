"""The ext_proc session, phase by phase: messages in, messages out."""

import gc
from collections.abc import Callable

import pytest

from epp_worker.extproc.endings import Status
from epp_worker.extproc.session import Session
from tests.extproc_world import (
    CHAT,
    MIB,
    A,
    B,
    World,
    ask,
    destination,
    immediate,
    kinds,
    replies,
    streamed,
)
from tests.unit import extproc_messages as make


@pytest.fixture
def world() -> World:
    return World()


# The request side, FULL_DUPLEX_STREAMED.


def test_whole_exchange(world: World) -> None:
    """Nothing before the body is complete; then headers and body; the response passes; counted."""
    session = world.session()
    assert not session.receive(make.request_headers())
    assert not session.receive(make.request_body(CHAT[:20]))
    assert world.budget.held == len(make.request_headers()) + 20
    out = session.receive(make.request_body(CHAT[20:], end_of_stream=True))
    assert kinds(out) == ["request_headers", "request_body"]
    assert destination(replies(out)[0]) == A
    assert streamed(out) == (CHAT, [True])
    assert world.budget.held == 0
    assert world.inflight() == 1
    assert kinds(session.receive(make.response_headers())) == ["response_headers"]
    body = b'{"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17}}'
    out = session.receive(make.response_body(body[:9]))
    assert streamed(out, "response") == (body[:9], [False])
    out = session.receive(make.response_body(body[9:], end_of_stream=True))
    assert streamed(out, "response") == (body[9:], [True])
    world.assert_nothing_held()
    assert not session.half_closed()
    assert session.ended == Status(0, "")
    assert world.counts.outcomes == ["picked"]
    assert world.counts.statuses == [200]
    assert world.counts.tokens == [(7, 10)]
    assert world.counts.ends == [True]


def test_bodyless_request_is_answered_at_once(world: World) -> None:
    """RequestHeaders with end_of_stream: the pick, and no body reply."""
    session = world.session()
    out = session.receive(
        make.request_headers({":method": "GET", ":path": "/v1/models"}, end_of_stream=True)
    )
    assert kinds(out) == ["request_headers"]
    assert destination(replies(out)[0]) == A


def test_bodyless_request_honours_the_subset() -> None:
    """Only an endpoint of the hint; 503 with a reason when none matches."""
    world = World([A, B])
    for _ in range(20):
        session = world.session()
        out = session.receive(make.request_headers(end_of_stream=True, subset=[B]))
        assert destination(replies(out)[0]) == B
        session.aborted()
    out = world.session().receive(make.request_headers(end_of_stream=True, subset=["10.9.9.9:1"]))
    assert immediate(out) == (503, "rejected-no-endpoints")


def test_subset_of_the_last_body_message() -> None:
    """The hint may come on the headers or on the last body message; the later one counts."""
    world = World([A, B])
    session = world.session()
    session.receive(make.request_headers(subset=[A]))
    out = session.receive(make.request_body(CHAT, end_of_stream=True, subset=[B]))
    assert destination(replies(out)[0]) == B


@pytest.mark.parametrize("extra", [b'd"}', b""])
def test_second_end_of_stream_is_ignored(world: World, extra: bytes) -> None:
    """One request, one pick (gateway-api-inference-extension#2988)."""
    session = world.session()
    session.receive(make.request_headers())
    piece = b'{"model":"m","prompt":"' + b"x" * 65_000
    session.receive(make.request_body(piece))
    for _ in range(19):
        session.receive(make.request_body(b"x" * 65_536))
    first = session.receive(make.request_body(b'"}', end_of_stream=True))
    assert kinds(first)[0] == "request_headers"
    assert not session.receive(make.request_body(extra, end_of_stream=True))
    assert not session.receive(make.request_headers())
    assert not session.receive(make.trailers("request"))
    assert world.inflight() == 1
    assert world.counts.outcomes == ["picked"]


def test_trailers_end_the_body(world: World) -> None:
    """Without any end_of_stream the trailers end the request: pick, chunks without an end mark,
    then the trailers reply (envoy#40046)."""
    session = world.session()
    session.receive(make.request_headers())
    assert not session.receive(make.request_body(CHAT))
    out = session.receive(make.trailers("request", {"x-checksum": "1"}))
    assert kinds(out) == ["request_headers", "request_body", "request_trailers"]
    assert streamed(out) == (CHAT, [False])


def test_trailers_without_body(world: World) -> None:
    """No body message at all: no body reply; a GET is routed, a completion is refused."""
    session = world.session()
    session.receive(make.request_headers({":method": "GET", ":path": "/x"}))
    assert kinds(session.receive(make.trailers("request"))) == [
        "request_headers",
        "request_trailers",
    ]
    session = world.session()
    session.receive(make.request_headers())
    assert immediate(session.receive(make.trailers("request"))) == (400, "")


@pytest.mark.parametrize(
    "size", [0, 65_535, 65_536, 1_048_575, 1_048_577, 2_097_153, 10 * MIB], ids=str
)
def test_bodies_come_back_byte_for_byte(world: World, size: int) -> None:
    """Whatever the size, in pieces of at most 62,000 bytes (agentgateway#2350, ai-gateway#805)."""
    body = b'{"model":"m","prompt":"%s"}' % (b"x" * size)
    session = world.session()
    session.receive(make.request_headers())
    for start in range(0, len(body), 65_536):
        assert not session.receive(make.request_body(body[start : start + 65_536]))
    out = session.receive(make.request_body(b"", end_of_stream=True))
    got, ends = streamed(out[1:])
    assert got == body
    assert ends == [False] * (len(ends) - 1) + [True]
    session.aborted()
    world.assert_nothing_held()


def test_numbers_and_escapes_are_untouched(world: World) -> None:
    """Nothing is written anew (usebruno/bruno#9230, gateway-api-inference-extension#943)."""
    body = (
        '{"seed":4634343214213523454,"t":1.0E+2,"x":"你好🙂\\u4f60",  '
        '"k":18446744073709551616,"model":"m"}'
    ).encode()
    out = ask(world, body, {":path": "/v1/completions", "content-length": str(len(body))})
    assert streamed(out) == (body, [True])
    names = [
        o.header.key for o in replies(out)[0].request_headers.response.header_mutation.set_headers
    ]
    assert names == ["x-gateway-destination-endpoint", "x-request-id"]


def test_multibyte_characters_cut_anywhere(world: World) -> None:
    """A body cut inside a character is still the same body (urllib3.future#349)."""
    body = '{"model":"模型🙂","prompt":"你好🙂"}'.encode()
    for cut in range(len(body)):
        session = world.session()
        session.receive(make.request_headers())
        session.receive(make.request_body(body[:cut]))
        out = session.receive(make.request_body(body[cut:], end_of_stream=True))
        assert streamed(out) == (body, [True])
        session.aborted()


# Pools that share a group.


def test_pools_are_told_apart_by_model() -> None:
    """By annotation; unknown, ambiguous or absent models are refused, never guessed."""
    world = World(models=["a, both", "b,both"])
    for model, pool in [("a", "pool-0"), ("b", "pool-1")]:
        session = world.session()
        session.receive(make.request_headers())
        session.receive(make.request_body(b'{"model":"%s"}' % model.encode(), end_of_stream=True))
        assert session.picked is not None
        assert session.picked.pool == ("ns", pool)
    for body in (b'{"model":"both"}', b'{"model":"c"}'):
        assert immediate(ask(world, body)) == (400, "")
    assert immediate(world.session().receive(make.request_headers(end_of_stream=True)))[0] == 400


# The end.


def test_half_close_before_the_request_is_complete(world: World) -> None:
    """INVALID_ARGUMENT: ending OK would make the gateway forward an empty body."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(b"half"))
    assert not session.half_closed()
    assert session.ended is not None
    assert session.ended.code == 3
    world.assert_nothing_held()


def test_damaged_message(world: World) -> None:
    """INTERNAL; everything is let go, later messages change nothing."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(b"half"))
    assert not session.receive(b"\x22\xff")
    assert session.ended is not None
    assert session.ended.code == 13
    assert not session.receive(make.request_body(b"more"))
    world.assert_nothing_held()


def cancel_after_headers(session: Session) -> None:
    session.receive(make.request_headers())


def cancel_in_body(session: Session) -> None:
    cancel_after_headers(session)
    session.receive(make.request_body(CHAT[:5]))


def cancel_after_pick(session: Session) -> None:
    cancel_after_headers(session)
    session.receive(make.request_body(CHAT, end_of_stream=True))


def cancel_in_response(session: Session) -> None:
    cancel_after_pick(session)
    session.receive(make.response_headers({":status": "200", "content-type": "text/event-stream"}))
    for _ in range(3):
        session.receive(make.response_body(b"data: {}\n\n"))


def refuse(session: Session) -> None:
    cancel_after_headers(session)
    session.receive(make.request_body(b"{", end_of_stream=True))


@pytest.mark.parametrize(
    ("steps", "outcomes", "ends"),
    [
        (cancel_after_headers, [], []),
        (cancel_in_body, [], []),
        (cancel_after_pick, ["picked"], [False]),
        (cancel_in_response, ["picked"], [False]),
        (refuse, ["400"], []),
    ],
)
def test_every_end_releases_once(
    world: World,
    steps: Callable[[Session], None],
    outcomes: list[str],
    ends: list[bool],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whenever the stream goes, nothing stays counted, and it is no error (envoy#25277,
    ray#37943, litellm#33404)."""
    for _ in range(100):
        session = world.session()
        steps(session)
        session.aborted()
        session.aborted()
        session.half_closed()
    world.assert_nothing_held()
    assert world.counts.outcomes == outcomes * 100
    assert world.counts.ends == ends * 100
    assert world.counts.tokens == []
    assert not caplog.records


def test_an_ended_session_holds_no_body(world: World) -> None:
    """Request bytes are let go at the decision, not at the stream's end hours later."""
    session = world.session()
    session.receive(make.request_headers())
    session.receive(make.request_body(CHAT, end_of_stream=True))
    gc.collect()
    held = [item for item in gc.get_referents(session) if isinstance(item, (bytes, list))]
    assert not any(item for item in held)

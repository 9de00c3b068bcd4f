"""Requests that the ext_proc session refuses, and odd ones that it does not."""

import gzip
import zlib

import pytest

from epp_worker.extproc.endings import Status
from tests.extproc_world import (
    CHAT,
    MIB,
    A,
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


def test_no_endpoint(world: World) -> None:
    """503 with a reason, nothing said before it, the stream ends OK (llm-d-router#1735)."""
    world.pools[0].set_endpoints([])
    session = world.session()
    assert not session.receive(make.request_headers())
    out = session.receive(make.request_body(CHAT, end_of_stream=True))
    assert immediate(out) == (503, "rejected-no-endpoints")
    assert session.ended == Status(0, "")
    assert not session.receive(make.request_body(b"more"))
    assert world.counts.outcomes == ["503"]
    world.assert_nothing_held()


MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "not json": b"no healthy upstream",
    "cut": b'{"model":"m"',
    "bad utf-8": b'{"model":"\xff"}',
    "deep": b"[" * 200_000,
    "deep object": b'{"model":' * 20_000,
    "long number": b'{"seed":' + b"9" * 5_000 + b"}",
    "array": b"[1]",
    "string": b'"x"',
    "null": b"null",
    "number": b"1",
    "two documents": b'{"model":"a"}{"model":"b"}',
    "garbage after": b'{"model":"a"} d',
    "no model": b'{"prompt":"x"}',
    "null model": b'{"model":null}',
    "empty model": b'{"model":""}',
    "number model": b'{"model":42}',
    "list model": b'{"model":["m"]}',
    "object model": b'{"model":{"a":1}}',
    "true model": b'{"model":true}',
    "long model": b'{"model":"' + b"m" * MIB + b'"}',
    "surrogate": b'{"model":"\\ud800"}',
    "surrogate inside": b'{"model":"a\\udfffb"}',
    "surrogate beside NaN": b'{"model":"\\ud800","t":NaN}',
    "last model wins": b'{"model":"a","model":42}',
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_body(world: World, name: str) -> None:
    """One 400 with a JSON error that quotes nothing; the worker serves on (semantic-router#1573,
    headroom#2480)."""
    body = MALFORMED[name]
    out = ask(world, body)
    assert immediate(out) == (400, "")
    assert kinds(ask(world, CHAT)) == ["request_headers", "request_body"]
    assert world.counts.outcomes == ["400", "picked"]
    world.assert_nothing_held()


ACCEPTED: dict[str, bytes] = {
    "repeated": b'{"model":"a","model":"b"}',
    "NaN": b'{"model":"m","t":NaN}',
    "infinite": b'{"model":"m","t":1e999}',
    "bom": b'\xef\xbb\xbf{"model":"m"}',
    "utf-16": '{"model":"m"}'.encode("utf-16"),
    "pair": b'{"model":"\\ud83d\\ude42"}',
    "no messages": b'{"model":"m","messages":[]}',
    "tool calls": b'{"model":"m","messages":[{"content":null,"tool_calls":[{}]}]}',
    "responses": b'{"model":"m","input":["a","b"]}',
    "long number": b'{"model":"m","seed":' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_odd_but_good_body(world: World, name: str) -> None:
    """Only `model` matters for routing (gateway-api-inference-extension#790)."""
    assert streamed(ask(world, ACCEPTED[name])) == (ACCEPTED[name], [True])


def test_canary_stays_inside(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """No log and no answer quotes a body or a header (gateway-api-inference-extension#1162)."""
    caplog.set_level(0)
    body = b'{"model": 5, "prompt":"CANARY-123", broken'
    out = ask(world, body, {":path": "/v1/completions", "authorization": "Bearer CANARY-456"})
    assert immediate(out)[0] == 400
    assert b"CANARY" not in b"".join(out)
    assert "CANARY" not in caplog.text


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({":method": "POST", ":path": "/v1/embeddings"}, b"{}", 400),
        ({":method": "POST", ":path": "/v1/responses?x=1"}, b"{}", 400),
        ({":method": "POST", ":path": "/v1/messages/"}, b"{}", 400),
        ({"x-original-path": "/v1/completions"}, b"{}", 400),
        ({}, b"{}", 400),
        ({}, b"", 0),
        ({":method": "POST", ":path": "/tokenize"}, b"{}", 0),
        ({":method": "POST", ":path": "/v1/audio/transcriptions"}, b"--form", 0),
        ({":method": "DELETE", ":path": "/v1/responses"}, b"x", 0),
    ],
)
def test_where_a_model_is_needed(
    world: World, headers: dict[str, str | bytes], body: bytes, status: int
) -> None:
    """A POST to a path whose body names a model needs one; a gateway without pseudo headers is
    taken to POST a completion if it sends a body; everything else is routed without."""
    out = ask(world, body, headers)
    if status:
        assert immediate(out)[0] == status
    else:
        assert streamed(out) == (body, [True])


GZIP: dict[str, str | bytes] = {":path": "/v1/completions", "content-encoding": "gzip"}


def test_compressed_body_is_read_from_a_copy() -> None:
    """gzip, deflate: the model is found, the compressed bytes go on (agentgateway#2402)."""
    world = World(models=["m,other", "n"])
    plain = b'{"model":"m","prompt":"%s"}' % (b"x" * 66_000)
    for coding, body in [
        ("gzip", gzip.compress(plain)),
        ("deflate", zlib.compress(plain)),
        ("GZIP", plain),
    ]:
        out = ask(world, body, {":path": "/v1/completions", "content-encoding": coding})
        assert destination(replies(out)[0]) == A
        assert streamed(out)[0] == body


def test_damaged_and_hostile_compression() -> None:
    """Cut or false gzip is 400; a bomb is 413; held memory stays within the cap (headroom#71)."""
    world = World(per_stream=MIB)
    body = gzip.compress(CHAT)
    assert immediate(ask(world, body[:-12], GZIP)) == (400, "")
    assert immediate(ask(world, b"\x1f\x8bnonsense", GZIP)) == (400, "")
    bomb = gzip.compress(b"0" * 8 * MIB)
    assert immediate(ask(world, bomb, GZIP)) == (413, "")
    world.assert_nothing_held()


def test_unknown_coding_goes_by_the_pool() -> None:
    """zstd: routed when the group has one pool, a clear 400 when a model must choose."""
    headers: dict[str, str | bytes] = {":path": "/v1/completions", "content-encoding": "zstd"}
    body = b"\x28\xb5\x2f\xfd rest"
    assert streamed(ask(World(), body, headers)) == (body, [True])
    assert immediate(ask(World(models=["m", "n"]), body, headers)) == (400, "")


def test_body_over_the_cap() -> None:
    """413 as soon as the cap is passed, memory given back (envoyproxy/ai-gateway#1209)."""
    world = World(per_stream=100_000)
    session = world.session()
    session.receive(make.request_headers())
    assert not session.receive(make.request_body(b"x" * 100_000))
    assert immediate(session.receive(make.request_body(b"x"))) == (413, "")
    assert session.ended == Status(0, "")
    assert world.counts.outcomes == ["413"]
    world.assert_nothing_held()


def test_worker_full() -> None:
    """Requests of all streams together have a bound too. Who waits longest for its next part gets
    429, not who comes last; and there is room again."""
    head = len(make.request_headers())
    world = World(per_stream=100, total=150 + 3 * head)
    idle, busy, new = world.session(), world.session(), world.session()
    answers: list[tuple[int, str]] = []
    idle.on_starved = lambda answer: answers.append(immediate(answer))
    for session in (idle, busy, new):
        session.receive(make.request_headers())
        assert not session.receive(make.request_body(b"x" * 50))
    assert not busy.receive(make.request_body(b"x" * 10))
    assert answers == [(429, "rejected-saturated")]
    assert idle.ended == Status(0, "")
    assert world.budget.held == 50 + 50 + 10 + 2 * head
    assert not idle.receive(make.request_body(b"x"))
    assert not new.receive(make.request_body(b"x" * 40))
    assert (busy.ended, new.ended) == (None, None)
    for session in (idle, busy, new):
        session.aborted()
        session.aborted()
    world.assert_nothing_held()
    assert world.counts.outcomes == ["429"]


def test_a_head_that_the_worker_cannot_hold() -> None:
    """Waiting request headers count too; one that would not fit alone turns nobody else away."""
    head = make.request_headers()
    world = World(total=len(head) + 100)
    first, second = world.session(), world.session()
    first.receive(head)
    large = make.request_headers({":path": "/v1/completions", "x": "y" * 200})
    assert immediate(second.receive(large)) == (429, "rejected-saturated")
    assert first.ended is None
    first.aborted()
    world.assert_nothing_held()


def test_side_copies_of_responses_are_bounded_together(world: World) -> None:
    """A response whose copy does not fit is passed on all the same; its usage is not known."""
    world.copies.total = 150
    usage = b'{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}'
    sessions = [world.session() for _ in range(2)]
    for session in sessions:
        session.receive(make.request_headers(end_of_stream=True))
        session.receive(make.response_headers())
        assert kinds(session.receive(make.response_body(b" " * 100))) == ["response_body"]
    for session in reversed(sessions):
        out = session.receive(make.response_body(usage[:50]))
        assert kinds(out) == ["response_body"]
    assert world.copies.held == 150
    for session in sessions:
        out = session.receive(make.response_body(usage[50:], end_of_stream=True))
        assert kinds(out) == ["response_body"]
    world.assert_nothing_held()


def test_client_cannot_choose_the_destination(world: World) -> None:
    """A routing header of the client is overwritten, in every mode (llm-d-router#242)."""
    evil: dict[str, str | bytes] = {
        ":path": "/v1/completions",
        "x-gateway-destination-endpoint": "169.254.169.254:80",
        "X-Gateway-Destination-Endpoint": "169.254.169.254:80",
        "x-gateway-destination-endpoint-subset": "169.254.169.254:80",
    }
    assert destination(replies(ask(world, CHAT, evil))[0]) == A
    out = world.session().receive(make.request_headers(evil, end_of_stream=True))
    assert destination(replies(out)[0]) == A
    world.pools[0].set_endpoints([])
    out = ask(world, CHAT, evil)
    assert immediate(out)[0] == 503
    assert b"169.254" not in b"".join(out)

"""The ext_proc session, phase by phase: messages in, messages out."""

import gc
import gzip
import json
import random
import zlib
from collections.abc import Callable, Sequence

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from epp_worker.extproc.budget import BodyBudget, BodyShare
from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.extproc.endings import Status
from epp_worker.extproc.observer import SilentObserver
from epp_worker.extproc.session import Session
from epp_worker.extproc.usage import CopyBudget
from epp_worker.scheduling.contract import Pick
from epp_worker.scheduling.group import GroupPicker
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint, Pool
from tests.unit import extproc_messages as make

MIB = 1024 * 1024
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
A, B = "10.0.0.1:8000", "10.0.0.2:8000"


class Counts(SilentObserver):
    """What the session told."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []
        self.tokens: list[tuple[int | None, int | None]] = []
        self.statuses: list[int] = []
        self.ends: list[bool] = []
        self.faults = 0

    def picked(self, pick: Pick) -> None:
        self.outcomes.append("picked")

    def refused(self, status: int) -> None:
        self.outcomes.append(str(status))

    def response(self, status: int) -> None:
        self.statuses.append(status)

    def usage(self, prompt: int | None, completion: int | None, cached: int | None = None) -> None:
        self.tokens.append((prompt, completion))

    def usage_unreadable(self, count: int) -> None:
        self.faults += count

    def finished(self, complete: bool) -> None:
        self.ends.append(complete)


class World:
    """One pool (or more), one budget, and what came of the sessions."""

    def __init__(
        self,
        addresses: Sequence[str] = (A,),
        *,
        models: Sequence[str] = ("",),
        per_stream: int = 16 * MIB,
        total: int = 64 * MIB,
    ) -> None:
        self.pools = []
        for number, names in enumerate(models):
            pool = Pool(
                PoolRef("ns", f"pool-{number}"), f"uid-{number}", {"app": "a"}, (8000,), None,
                annotations={"epp-fleet.dev/models": names},
            )  # fmt: skip
            state = PoolState(pool, now=lambda: 0.0, rng=random.Random(1))
            state.set_endpoints([Endpoint(f"pod-{a}", f"uid-{a}", a, 0) for a in addresses])
            self.pools.append(state)
        self.budget = BodyBudget(per_stream=per_stream, total=total)
        self.share = BodyShare()
        self.copies = CopyBudget()
        self.counts = Counts()

    def session(self) -> Session:
        return Session(
            GroupPicker(self.pools),
            budget=self.budget,
            share=self.share,
            copies=self.copies,
            observer=self.counts,
            rng=random.Random(2),
            phases=ResponsePhases(),
        )

    def inflight(self) -> int:
        return sum(sum(pool.inflight().values()) for pool in self.pools)

    def assert_nothing_held(self) -> None:
        assert self.inflight() == 0
        assert self.budget.held == self.share.held == 0
        assert not self.share.holders
        assert self.copies.held == 0


@pytest.fixture
def world() -> World:
    return World()


def replies(data: Sequence[bytes]) -> list[ProcessingResponse]:
    return [ProcessingResponse.FromString(item) for item in data]


def kinds(data: Sequence[bytes]) -> list[str]:
    return [str(reply.WhichOneof("response")) for reply in replies(data)]


def streamed(data: Sequence[bytes], side: str = "request") -> tuple[bytes, list[bool]]:
    """The body in `streamed_response` replies of one side, and their end marks."""
    parts = [
        getattr(reply, f"{side}_body").response.body_mutation.streamed_response
        for reply in replies(data)
        if reply.WhichOneof("response") == f"{side}_body"
    ]
    return b"".join(part.body for part in parts), [part.end_of_stream for part in parts]


def immediate(data: Sequence[bytes]) -> tuple[int, str]:
    """Status and drop reason of the single ImmediateResponse."""
    assert kinds(data) == ["immediate_response"]
    answer = replies(data)[0].immediate_response
    error = json.loads(answer.body)["error"]
    assert set(error) == {"message", "type", "code"}
    headers = {o.header.key: o.header.raw_value.decode() for o in answer.headers.set_headers}
    assert headers["content-type"] == "application/json"
    return int(answer.status.code), headers.get("x-llm-d-request-dropped-reason", "")


def destination(reply: ProcessingResponse) -> str:
    part = getattr(reply, str(reply.WhichOneof("response"))).response
    assert part.clear_route_cache
    option, *others = part.header_mutation.set_headers
    assert [one.header.key for one in others] in ([], ["x-request-id"])
    assert option.header.key == "x-gateway-destination-endpoint"
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
    metadata = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert metadata[option.header.key].string_value == option.header.raw_value.decode()
    return str(option.header.raw_value.decode())


def ask(world: World, body: bytes, headers: dict[str, str | bytes] | None = None) -> list[bytes]:
    """A whole request in FULL_DUPLEX_STREAMED; what came back."""
    session = world.session()
    assert not session.receive(make.request_headers(headers))
    out = list(session.receive(make.request_body(body, end_of_stream=True)))
    session.aborted()
    return out


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


# Refusals.


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


# Other body modes: the gateway waits for each answer.


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


# No protocol_config.


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


# The response side.


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

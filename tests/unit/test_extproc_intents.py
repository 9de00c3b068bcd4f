"""Sessions that rewrite models, know priorities, and end with the pick."""

import gzip
import json
from collections.abc import Sequence

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.extproc.session import Session
from epp_worker.scheduling.contract import Pick, PickRequest, Refusal, ResponsePhase
from epp_worker.scheduling.group import GroupPicker
from fleet.model.identity import PoolRef
from fleet.model.rewrites import Intents, Rule, Target
from tests.extproc_world import World, immediate, kinds, replies, streamed
from tests.unit import extproc_messages as make

PATH = {":method": "POST", ":path": "/v1/chat/completions"}
BODY = b'{"model":"m", "messages":[{"role":"user","content":"hi"}]}'
RULES = Intents({"urgent": 7, "batch": -1}, {"m": Rule((Target("target"),))})


class Spy:
    """A picker that remembers what was asked of it, with what could be known during the pick."""

    def __init__(self, world: World) -> None:
        self._picker = GroupPicker(world.pools)
        self.asked: list[PickRequest] = []
        self.prompts: list[bytes] = []

    def pick(self, request: PickRequest) -> Pick | Refusal:
        self.asked.append(request)
        self.prompts.append(request.hints.prompt)
        return self._picker.pick(request)

    def intents(self, model: str | None) -> Intents:
        return self._picker.intents(model)

    def pool_of(self, model: str | None) -> PoolRef | None:
        return self._picker.pool_of(model)

    def names(self, model: str) -> bool:
        return self._picker.names(model)

    @property
    def needs_model(self) -> bool:
        return self._picker.needs_model


def session_of(
    world: World, intents: Intents = RULES, phase: ResponsePhase = ResponsePhase.TRACK
) -> tuple[Session, Spy]:
    for pool in world.pools:
        pool.intents = intents
    session, spy = world.session(), Spy(world)
    session._picker = spy
    session._phases = ResponsePhases(phase)
    return session, spy


def headers_of(reply: ProcessingResponse) -> dict[str, str]:
    mutation = getattr(reply, str(reply.WhichOneof("response"))).response.header_mutation
    return {one.header.key: one.header.raw_value.decode() for one in mutation.set_headers}


def asked(
    session: Session, body: bytes = BODY, mode: int = make.DUPLEX, **headers: str
) -> list[bytes]:
    return asked_with(session, body, headers, mode)


def asked_with(
    session: Session, body: bytes, headers: dict[str, str], mode: int = make.DUPLEX
) -> list[bytes]:
    given = {**PATH, **{key.replace("_", "-"): value for key, value in headers.items()}}
    out = [*session.receive(make.request_headers(given, mode=mode))]
    return [*out, *session.receive(make.request_body(body, end_of_stream=True))]


def test_a_rewrite_changes_the_model_and_the_length_that_was_told() -> None:
    """One correct content-length where there was one
    (kubernetes-sigs/gateway-api-inference-extension#943)."""
    world = World()
    session, spy = session_of(world)
    out = asked(session, content_length=str(len(BODY)))
    changed = BODY.replace(b'"m"', b'"target"')
    assert streamed(out) == (changed, [True])
    assert headers_of(replies(out)[0])["content-length"] == str(len(changed))
    (request,) = spy.asked
    assert (request.model, request.target_model) == ("m", "target")


def test_a_request_in_chunks_gets_no_length() -> None:
    """Both would be told otherwise (kubernetes-sigs/gateway-api-inference-extension#2551)."""
    session, _ = session_of(World())
    out = asked(session, transfer_encoding="chunked")
    assert "content-length" not in headers_of(replies(out)[0])


@pytest.mark.parametrize(
    ("headers", "model", "target"),
    [
        ({}, "m", "target"),
        ({"x_llm_d_model_name_rewrite": "h"}, "m", "target"),
        ({"x_llm_d_model_name_rewrite": "h"}, "k", "h"),
        ({"x_gateway_model_name_rewrite": "old"}, "k", "old"),
        ({"x_gateway_model_name_rewrite": "old", "x_llm_d_model_name_rewrite": "h"}, "k", "h"),
        ({"x_llm_d_model_name_rewrite": "k"}, "k", None),
        ({"x_llm_d_model_name_rewrite": ""}, "k", None),
        ({"x_llm_d_model_name_rewrite": "y" * 5000}, "k", None),
        ({}, "k", None),
    ],
)
def test_which_target(headers: dict[str, str], model: str, target: str | None) -> None:
    """The rule for the incoming model goes before the header, and the header's new name before
    the old one."""
    session, spy = session_of(World())
    body = b'{"model":"%s"}' % model.encode()
    out = asked_with(session, body, headers)
    assert spy.asked[0].target_model == target
    assert json.loads(streamed(out)[0])["model"] == (target or model)


def test_a_rule_for_any_model_supplies_a_missing_one() -> None:
    """So does the header; without either the request is refused."""
    generic = Intents(generic=Rule((Target("target"),)))
    session, _ = session_of(World(), generic)
    assert streamed(asked(session, b'{"x":1}'))[0] == b'{"model":"target","x":1}'
    session, _ = session_of(World())
    assert streamed(asked(session, b"{}", x_llm_d_model_name_rewrite="h"))[0] == b'{"model":"h"}'
    session, _ = session_of(World())
    assert immediate(asked(session, b"{}")) == (400, "")


def test_a_packed_body_goes_on_unpacked_when_it_is_rewritten() -> None:
    """Its coding is told no more; untouched ones go on as they came (agentgateway#2402)."""
    session, _ = session_of(World())
    packed = gzip.compress(BODY)
    out = asked(session, packed, content_encoding="gzip", content_length=str(len(packed)))
    changed = BODY.replace(b'"m"', b'"target"')
    assert streamed(out)[0] == changed
    first = replies(out)[0].request_headers.response.header_mutation
    assert list(first.remove_headers) == ["content-encoding"]
    assert headers_of(replies(out)[0])["content-length"] == str(len(changed))
    session, _ = session_of(World(), Intents())
    assert streamed(asked(session, packed, content_encoding="gzip"))[0] == packed


def test_buffered_bodies_are_rewritten_too() -> None:
    """On the body's own answer."""
    session, _ = session_of(World())
    out = asked(session, mode=make.BUFFERED)
    assert kinds(out) == ["request_headers", "request_body"]
    mutation = replies(out)[1].request_body.response.body_mutation
    assert mutation.body == BODY.replace(b'"m"', b'"target"')


def answer(session: Session, *chunks: bytes, length: bool = True) -> list[bytes]:
    headers = {":status": "200", "content-type": "application/json"}
    if length:
        headers["content-length"] = str(sum(map(len, chunks)))
    out = [*session.receive(make.response_headers(headers))]
    for number, chunk in enumerate(chunks):
        last = number == len(chunks) - 1
        out += session.receive(make.response_body(chunk, end_of_stream=last))
    return out


def test_the_client_reads_the_name_it_knows() -> None:
    """Also where the name is cut; the length that no longer holds is not told."""
    session, _ = session_of(World())
    asked(session)
    out = answer(session, b'{"id":1,"model":"tar', b'get","usage":{"prompt_tokens":1}}')
    assert streamed(out, "response")[0] == b'{"id":1,"model":"m","usage":{"prompt_tokens":1}}'
    mutation = replies(out)[0].response_headers.response.header_mutation
    assert list(mutation.remove_headers) == ["content-length"]


def test_a_name_cut_by_the_trailers_is_not_lost() -> None:
    """gRPC ends by trailers."""
    session, _ = session_of(World())
    asked(session)
    session.receive(make.response_headers({":status": "200", "content-type": "application/grpc"}))
    out = [*session.receive(make.response_body(b'a"model":"tar'))]
    out += session.receive(make.trailers("response"))
    assert streamed(out, "response")[0] == b'a"model":"tar'
    assert kinds(out)[-1] == "response_trailers"


def test_responses_of_requests_that_were_not_rewritten_stay() -> None:
    """Byte for byte, lengths included."""
    session, _ = session_of(World(), Intents())
    asked(session)
    out = answer(session, b'{"model":"target"}')
    assert streamed(out, "response")[0] == b'{"model":"target"}'
    assert not replies(out)[0].response_headers.response.HasField("header_mutation")


@pytest.mark.parametrize(
    ("headers", "objective", "priority"),
    [
        ({}, "", 0),
        ({"x_llm_d_inference_objective": "urgent"}, "urgent", 7),
        ({"x_gateway_inference_objective": "batch"}, "batch", -1),
        ({"x_gateway_inference_objective": "batch", "x_llm_d_inference_objective": "urgent"},
         "urgent", 7),
        ({"x_llm_d_inference_objective": "unknown"}, "unknown", 0),
    ],
)  # fmt: skip
def test_priorities(headers: dict[str, str], objective: str, priority: int) -> None:
    """By the objective that the request names, under the new header or the old one."""
    session, spy = session_of(World())
    asked_with(session, BODY, headers)
    assert (spy.asked[0].objective, spy.asked[0].priority) == (objective, priority)


def test_what_a_pick_is_told() -> None:
    """The path without its query, the request's id, and the prompt while it is picked for only."""
    session, spy = session_of(World())
    given = {**PATH, ":path": "/v1/chat/completions?x=1", "x-request-id": "r1"}
    session.receive(make.request_headers(given))
    out = session.receive(make.request_body(BODY, end_of_stream=True))
    (request,) = spy.asked
    assert (request.path, request.request_id) == ("/v1/chat/completions", "r1")
    assert spy.prompts == [b"userhi"]
    assert request.hints.prompt == b""
    assert "x-request-id" not in headers_of(replies(out)[0])


def test_an_id_is_made_for_a_request_without() -> None:
    """A random UUID, told to the model server."""
    session, spy = session_of(World())
    made = headers_of(replies(asked(session))[0])["x-request-id"]
    assert made == spy.asked[0].request_id
    assert (len(made), made[14]) == (36, "4")


# Streams that end with the pick.


def leaving(world: World, phase: ResponsePhase = ResponsePhase.DETACH) -> Session:
    session, _ = session_of(world, Intents(), phase)
    session.detachable = True
    return session


def test_the_end_of_body_and_stream_go_together() -> None:
    """What comes first bears no end; the count stays with the endpoint."""
    world = World()
    session = leaving(world)
    out = asked(session)
    assert streamed(out) == (BODY, [False])
    assert session.parting is not None
    last: Sequence[bytes] = session.leave()
    assert streamed(last) == (b"", [True])
    assert session.ended is not None
    assert world.inflight() == 1
    assert world.counts.ends == []


def test_a_stream_that_stays_after_all_ends_its_body() -> None:
    """Nothing of the request is missing then."""
    world = World()
    session = leaving(world)
    asked(session)
    assert streamed(session.stay()) == (b"", [True])
    assert session.parting is None
    answer(session, b"{}")
    assert world.counts.ends == [True]
    assert world.inflight() == 0


def test_who_may_not_leave() -> None:
    """A gateway that is not known to bear it, other body modes, requests with trailers, responses
    in which a name is to be changed, and pools that are tracked."""
    session = leaving(World())
    session.detachable = False
    asked(session)
    assert session.parting is None
    session = leaving(World())
    asked(session, mode=make.BUFFERED)
    assert session.parting is None
    session = leaving(World())
    session.receive(make.request_headers(PATH))
    session.receive(make.request_body(BODY))
    session.receive(make.trailers("request"))
    assert session.parting is None
    session, _ = session_of(World(), RULES, ResponsePhase.DETACH)
    session.detachable = True
    asked(session)
    assert session.parting is None
    for phase in (ResponsePhase.TRACK, ResponsePhase.DRAIN):
        session = leaving(World(), phase)
        asked(session)
        assert session.parting is None


def test_a_request_without_a_body_has_nothing_to_hold_back() -> None:
    """The pick is all that there is."""
    session = leaving(World())
    out = session.receive(make.request_headers({":path": "/v1/models"}, end_of_stream=True))
    assert kinds(out) == ["request_headers"]
    assert session.parting == ()
    assert session.leave() == ()

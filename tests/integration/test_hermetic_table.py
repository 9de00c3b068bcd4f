"""The reference endpoint picker's own table of whole exchanges, replayed by a stock gRPC client.

Each row is a pool with pods and their load, what a gateway sends, and what must come back. Where
this endpoint picker answers otherwise on purpose, the row says so, in the words of
docs/compatibility.md.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from fleet.model import Hold
from fleet.picking.choice import Configs
from fleet.picking.decode import decode
from tests import manifest_texts
from tests.unit import extproc_messages as make
from tests.worker_inprocess import DEADLINE, Gateway, Running, TestLeader, running_worker

POOL = "pool-a"
AUTHORITY = "pool-a-epp.ns1.svc:9002"
PICK = "x-gateway-destination-endpoint"
REASON = "x-llm-d-request-dropped-reason"
COMPATIBILITY = Path(__file__).parents[2] / "docs" / "compatibility.md"


CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - type: kv-cache-utilization-scorer
  - type: prefix-cache-scorer
  - type: lora-affinity-scorer
  - type: max-score-picker
schedulingProfiles:
  - name: default
    plugins:
      - {pluginRef: queue-scorer, weight: 1}
      - {pluginRef: kv-cache-utilization-scorer, weight: 1}
      - {pluginRef: prefix-cache-scorer, weight: 1}
      - {pluginRef: lora-affinity-scorer, weight: 1}
      - {pluginRef: max-score-picker}
"""
"""The table's own: all scorers weigh the same."""


class P(NamedTuple):
    """A pod's load: queue, KV cache in use, and the models that it runs."""

    queue: int
    kv: float
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One exchange.

    Attributes:
        pods: the n-th has the address 192.168.1.(n+1).
        model: the objective's name, and the incoming model unless `body` is given.
        target: in the rewrite header.
        body: in these pieces.
        subset: the gateway's hint.
        picked: the n-th pod; None = `status`.
        sent: the body that goes on; None = the one that came, for `asks`.
        asks: the model that goes on.
        otherwise: how we differ; a phrase of docs/compatibility.md.
    """

    pods: Sequence[P]
    model: str = "my-model"
    target: str = ""
    body: Sequence[bytes] | None = None
    path: str = ""
    subset: Sequence[str] | None = None
    picked: int | None = None
    asks: str | None = None
    status: int = 0
    reason: str = ""
    bodyless: bool = False
    otherwise: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


THREE = (P(0, 0.2), P(1, 0.1), P(2, 0.2))
ERRORS = "Error bodies are JSON"
NO_PODS = "no ready endpoint is always 503"

ROWS = {
    "select lower queue and kv cache": Row(
        (P(3, 0.2), P(0, 0.1), P(10, 0.2)),
        target="my-model-12345", picked=1, asks="my-model-12345",
    ),
    "select active lora, low queue": Row(
        (
            P(0, 0.2, ("foo", "bar")),
            P(0, 0.1, ("foo", "sql-lora-1fdg2")),
            P(10, 0.2, ("foo", "bar")),
        ),
        model="sql-lora", target="sql-lora-1fdg2", picked=1, asks="sql-lora-1fdg2",
    ),
    "select lora despite higher kv cache": Row(
        (P(10, 0.2, ("foo", "bar")), P(10, 0.4, ("foo", "sql-lora-1fdg2")), P(10, 0.3, ("foo",))),
        model="sql-lora", target="sql-lora-1fdg2", picked=1, asks="sql-lora-1fdg2",
    ),
    "do not shed requests by default": Row(
        (P(6, 0.2, ("foo", "bar", "sql-lora-1fdg3")), P(0, 0.85, ("foo",)), P(10, 0.9, ("foo",))),
        model="sql-lora-sheddable", target="sql-lora-1fdg3", picked=0, asks="sql-lora-1fdg3",
    ),
    "passthrough parser success": Row(
        (P(3, 0.2), P(0, 0.1), P(10, 0.2)),
        body=[b"passthrough-parser"], path="/anything", picked=1,
        otherwise="The path decides which parser reads a body",
    ),
    "invalid json body": Row(THREE, body=[b"no healthy upstream"], status=400, otherwise=ERRORS),
    "split body across chunks": Row(
        (P(4, 0.2, ("foo", "bar", "sql-lora-1fdg3")), P(4, 0.85, ("foo", "sql-lora-1fdg3"))),
        model="sql-lora-sheddable", target="sql-lora-1fdg3",
        body=[
            b'{"max_tokens":100,"model":"sql-lora-sheddable","prompt":"te',
            b'st6","temperature":0}',
        ],
        picked=0, asks="sql-lora-1fdg3",
    ),
    "no backend pods available": Row(
        (), bodyless=True, status=503, reason="rejected-no-endpoints", otherwise=NO_PODS
    ),
    "request missing model field": Row(
        (), body=[b'{"prompt":"hello world"}'], status=400, otherwise=ERRORS
    ),
    "subsetting: select best from subset": Row(
        (P(0, 0.2, ("foo",)), P(0, 0.1, ("foo",)), P(10, 0.2, ("foo",))),
        subset=["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000"], picked=1,
    ),
    "subsetting: partial match": Row(
        (P(0, 0.2), P(0, 0.1), P(10, 0.2)), subset=["192.168.1.3:8000"], picked=2
    ),
    "subsetting: no pods match": Row(
        (P(0, 0.2), P(0, 0.1), P(10, 0.2)),
        subset=["192.168.1.99:8000"], status=503, reason="rejected-no-endpoints", otherwise=ERRORS,
    ),
    "passthrough: model not in objectives": Row(
        (P(4, 0.2, ("foo", "bar", "my-model")), P(4, 0.85, ("foo",))),
        model="direct-model", target="direct-model",
        body=[b'{"max_tokens":100,"model":"direct-', b'model","prompt":"test6","temperature":0}'],
        picked=0, asks="direct-model",
    ),
    "rewrite request model": Row(
        (P(0, 0.1, ("foo", "rewritten-model")),),
        model="model-to-be-rewritten", target="model-to-be-rewritten",
        picked=0, asks="rewritten-model",
    ),
    "protocol: simple GET": Row((P(0, 0.1),), bodyless=True, picked=0),
}  # fmt: skip


def manifests(row: Row) -> str:
    """The table's pool, objectives and rewrite."""
    pods = [
        manifest_texts.pod(f"pod-{n}", ip=f"192.168.1.{n + 1}", labels={"app": POOL})
        for n in range(len(row.pods))
    ]
    priorities = {
        "my-model": 2,
        "sql-lora": 2,
        "direct-model": 2,
        "sql-lora-sheddable": None,
        "inference-objective-with-priority-4": 4,
    }
    objectives = [
        manifest_texts.objective(name, priority=priority) for name, priority in priorities.items()
    ]
    rule = {
        "matches": [{"model": {"value": "model-to-be-rewritten"}}],
        "targets": [{"modelRewrite": "rewritten-model"}],
    }
    rewrite = manifest_texts.rewrite(rules=[rule])
    return manifest_texts.text(manifest_texts.pool(POOL), *pods, *objectives, rewrite)


@asynccontextmanager
async def serving(folder: Path, row: Row) -> AsyncIterator[tuple[Running, Gateway]]:
    folder.joinpath("all.yaml").write_text(manifests(row))
    async with running_worker(folder) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, pool_a=Hold.OWNER))
        config = decode(CONFIG, name="default")
        running.worker.holdings.schedulers.configs = Configs({"default": config})
        (group,) = running.worker.holdings
        (state,) = group.states.values()
        for endpoint in state.endpoints():
            load = row.pods[int(endpoint.ip.rpartition(".")[2]) - 1]
            at = state.now()
            endpoint.scraped(waiting=load.queue, running=0, kv=load.kv, at=at, inflight=0)
            endpoint.described(
                lora_running=frozenset(load.models),
                lora_waiting=frozenset(),
                lora_max=0,  # the table's pods do not say how many may run
                block_size=None,
                blocks=None,
            )
        gateway = Gateway(running.worker.addresses.ext_proc, AUTHORITY)
        try:
            yield running, gateway
        finally:
            await gateway.close()
            await leader.close()


async def exchange(gateway: Gateway, messages: Sequence[bytes]) -> list[ProcessingResponse]:
    """All answers, in order, to a gateway that says this and half-closes."""
    call: Any = gateway.stream()
    found = []
    async with asyncio.timeout(DEADLINE):
        for message in messages:
            await call.write(message)
        await call.done_writing()
        while isinstance(data := await call.read(), bytes):
            found.append(ProcessingResponse.FromString(data))
        assert await call.code() is grpc.StatusCode.OK
    return found


def messages_of(row: Row) -> tuple[list[bytes], bytes]:
    """What the gateway sends, and the body in it."""
    headers = {"hi": "mom", "x-request-id": "test-request-id"}
    headers["x-llm-d-inference-objective"] = row.model
    if row.target:
        headers["x-llm-d-model-name-rewrite"] = row.target
    if row.path:
        headers[":path"] = row.path
    if row.bodyless:
        return [make.request_headers(headers, end_of_stream=True)], b""
    asked = {"max_tokens": 100, "model": row.model, "prompt": "test", "temperature": 0}
    pieces = row.body or [json.dumps(asked).encode()]
    body = b"".join(pieces)
    headers["content-length"] = str(len(body))
    sent = [make.request_headers(headers, subset=row.subset)]
    for number, piece in enumerate(pieces):
        last = number == len(pieces) - 1
        sent.append(make.request_body(piece, end_of_stream=last, subset=row.subset))
    return sent, body


@pytest.mark.parametrize("name", ROWS)
async def test_requests(tmp_path: Path, name: str) -> None:
    """Who is picked, or how the request is refused; what goes on of its headers and body."""
    row = ROWS[name]
    sent, body = messages_of(row)
    async with serving(tmp_path, row) as (_, gateway):
        found = await exchange(gateway, sent)
    if row.otherwise:
        assert row.otherwise in COMPATIBILITY.read_text()
    if row.picked is None:
        (refusal,) = found
        immediate = refusal.immediate_response
        assert immediate.status.code == row.status
        assert json.loads(immediate.body)["error"]["message"]
        set_headers = {o.header.key: o.header.raw_value for o in immediate.headers.set_headers}
        assert set_headers.get(REASON, b"").decode() == row.reason
        return
    head, *bodies = found
    common = head.request_headers.response
    assert common.clear_route_cache
    address = f"192.168.1.{row.picked + 1}:8000"
    headers = {
        o.header.key: o.header.raw_value.decode() for o in common.header_mutation.set_headers
    }
    assert headers.pop(PICK) == address
    assert head.dynamic_metadata["envoy.lb"][PICK] == address
    went_on = [each.request_body.response.body_mutation.streamed_response for each in bodies]
    assert [each.end_of_stream for each in went_on] == ([] if row.bodyless else [True])
    forwarded = b"".join(each.body for each in went_on)
    if row.asks is not None:
        assert json.loads(forwarded) == {**json.loads(body), "model": row.asks}
    if forwarded == body:
        assert headers == {}, "only what changes is set"
    else:
        assert headers == {"content-length": str(len(forwarded))}


class Response(NamedTuple):
    """An exchange without a request's side: chunks in, the body out and how often."""

    content_type: str
    chunks: Sequence[bytes]
    otherwise: str = ""


PASSED = "Response bodies are passed on as they come"
USAGE = (
    b'data: {"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17}}\n\n'
    b"data: [DONE]\n\n"
)
RESPONSES = {
    "response buffering: multi-chunk JSON": Response(
        "application/json", [b'{"max_tokens":100,"model":"sql-lora-sheddable",', b'"prompt":"x"}'],
        PASSED,
    ),
    "response buffering: invalid JSON": Response("application/json", [b"no healthy upstream"]),
    "response buffering: empty EOS chunk": Response("application/json", [b'{"a":1}', b""], PASSED),
    "response streaming: SSE token counting": Response(
        "text/event-stream", [b"data: {}\n\n", USAGE, b""]
    ),
}  # fmt: skip


@pytest.mark.parametrize("with_request", [False, True])
@pytest.mark.parametrize("name", RESPONSES)
async def test_responses(tmp_path: Path, name: str, with_request: bool) -> None:
    """Each chunk comes back as it is, at once, also on a stream that begins with the response."""
    response = RESPONSES[name]
    row = Row((P(0, 0.1),))
    sent = messages_of(row)[0] if with_request else []
    count = len(sent)
    sent.append(make.response_headers({":status": "200", "content-type": response.content_type}))
    for number, chunk in enumerate(response.chunks):
        last = number == len(response.chunks) - 1
        sent.append(make.response_body(chunk, end_of_stream=last))
    async with serving(tmp_path, row) as (running, gateway):
        head, *bodies = (await exchange(gateway, sent))[count:]
        assert not running.fatal
    assert head.HasField("response_headers")
    assert not head.response_headers.response.header_mutation.set_headers
    came = [each.response_body.response.body_mutation.streamed_response for each in bodies]
    assert [each.body for each in came] == list(response.chunks)
    assert [each.end_of_stream for each in came] == [False] * (len(came) - 1) + [True]
    if response.otherwise:
        assert response.otherwise in COMPATIBILITY.read_text()


async def test_grpc_responses_end_by_trailers(tmp_path: Path) -> None:
    """Chunks without an end, then the trailers' own answer."""
    sent = messages_of(Row((P(0, 0.1),)))[0]
    count = len(sent)
    sent.append(make.response_headers({":status": "200", "content-type": "application/grpc"}))
    sent += [make.response_body(b"\0\0\0\0\1a"), make.response_body(b"\0\0\0\0\1b")]
    sent.append(make.trailers("response", {"grpc-status": "0"}))
    async with serving(tmp_path, Row((P(0, 0.1),))) as (running, gateway):
        head, *bodies, end = (await exchange(gateway, sent))[count:]
        assert running.worker.figures().responses["complete"] == 1
    assert head.HasField("response_headers")
    assert end.HasField("response_trailers")
    came = [each.response_body.response.body_mutation.streamed_response for each in bodies]
    assert [each.body for each in came] == [b"\0\0\0\0\1a", b"\0\0\0\0\1b"]
    assert not any(each.end_of_stream for each in came)

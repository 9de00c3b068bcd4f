"""The wire, as gateways of the field use and misuse it: a stock gRPC client against a worker."""

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import HeaderValue
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from epp_worker.metrics import MetricsPage
from epp_worker.process import PATH
from fleet.model import Hold
from tests.unit import extproc_messages as make
from tests.worker_inprocess import (
    DEADLINE,
    Running,
    TestLeader,
    running_worker,
    until,
    write_pool,
)

A = "10.0.0.1:8000"
AUTHORITY = "pool-a-epp.ns1.svc:9002"
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    """A worker that owns pool-a (one endpoint) and pool-empty (none)."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    write_pool(tmp_path, "pool-empty", "")
    async with running_worker(tmp_path) as worker:
        leader = TestLeader(worker.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(worker.share(1, pool_a=Hold.OWNER, pool_empty=Hold.OWNER))
        yield worker
        await leader.close()


class Peer:
    """A gateway's connection without any limit of its own on messages."""

    def __init__(self, running: Running, authority: str = AUTHORITY) -> None:
        self._channel = grpc.aio.insecure_channel(
            running.worker.addresses.ext_proc,
            options=[
                ("grpc.default_authority", authority),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ],
        )

    def call(self) -> "Call":
        untyped: Any = self._channel
        return Call(untyped.stream_stream(PATH, _same, _same)())

    async def close(self) -> None:
        await self._channel.close(None)


def _same(message: bytes) -> bytes:
    return message


class Call:
    """One stream."""

    def __init__(self, call: Any) -> None:
        self.raw = call

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self.raw.write(message)

    async def reply(self) -> ProcessingResponse:
        async with asyncio.timeout(DEADLINE):
            data = await self.raw.read()
        if not isinstance(data, bytes):
            raise AssertionError(f"no reply: {await self.raw.code()} {await self.raw.details()}")
        return ProcessingResponse.FromString(data)

    async def replies(self, count: int) -> list[ProcessingResponse]:
        return [await self.reply() for _ in range(count)]

    async def body(self, side: str) -> tuple[bytes, list[ProcessingResponse]]:
        """Streamed replies of one side up to the end mark, and their joined bytes."""
        parts = []
        while True:
            parts.append(await self.reply())
            streamed = _streamed(parts[-1], side)
            if streamed.end_of_stream:
                return b"".join(_streamed(part, side).body for part in parts), parts

    async def silent(self) -> bool:
        """Whether nothing comes, judged by a later message that is always answered: none is sent,
        so half-closing ends the stream and whatever was said before it is seen."""
        await self.raw.done_writing()
        async with asyncio.timeout(DEADLINE):
            return not isinstance(await self.raw.read(), bytes)

    async def code(self) -> grpc.StatusCode:
        async with asyncio.timeout(DEADLINE):
            code: grpc.StatusCode = await self.raw.code()
            return code

    def cancel(self) -> None:
        self.raw.cancel()


def _streamed(reply: ProcessingResponse, side: str) -> Any:
    assert reply.WhichOneof("response") == f"{side}_body", reply
    return getattr(reply, f"{side}_body").response.body_mutation.streamed_response


def kind(reply: ProcessingResponse) -> str:
    return str(reply.WhichOneof("response"))


def picked(reply: ProcessingResponse) -> str:
    """The endpoint that a headers or body reply names, by header and metadata alike."""
    common = getattr(reply, kind(reply)).response
    option, *others = common.header_mutation.set_headers
    assert [one.header.key for one in others] in ([], ["x-request-id"])
    assert option.header.key == "x-gateway-destination-endpoint"
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
    assert common.clear_route_cache
    value = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields[option.header.key]
    assert value.string_value.encode() == option.header.raw_value
    return str(option.header.raw_value.decode())


def inflight(running: Running) -> int:
    return sum(sum(one.values()) for one in running.worker.figures().inflight.values())


@pytest.fixture
async def peer(running: Running) -> AsyncIterator[Peer]:
    """One gateway connection."""
    peer = Peer(running)
    yield peer
    await peer.close()


@pytest.mark.parametrize("extra", [b'd"}', b"", b"x" * 70_000])
async def test_a_second_end_of_stream(running: Running, peer: Peer, extra: bytes) -> None:
    """1.3 MB in pieces, then the end twice: one pick, one echo (inference-extension#2988)."""
    body = b'{"model":"m","prompt":"' + b"x" * (20 * 65_536) + b'"}'
    call = peer.call()
    await call.send(make.request_headers())
    for start in range(0, len(body), 65_536):
        piece = body[start : start + 65_536]
        await call.send(make.request_body(piece, end_of_stream=start + 65_536 >= len(body)))
    await call.send(make.request_body(extra, end_of_stream=True), make.trailers("request"))
    assert picked(await call.reply()) == A
    got, _ = await call.body("request")
    assert got == body
    assert inflight(running) == 1
    await call.send(make.response_headers())
    assert kind(await call.reply()) == "response_headers"
    assert await call.silent()
    assert running.worker.picks.by_outcome["picked"] == 1


@pytest.mark.parametrize(
    ("mode", "at_once"),
    [
        (make.BUFFERED, True),
        (make.BUFFERED_PARTIAL, True),
        (make.STREAMED, True),
        (make.NONE, True),
        (None, True),
        (make.DUPLEX, False),
    ],
)
async def test_no_mode_waits_for_ever(peer: Peer, mode: int | None, at_once: bool) -> None:
    """The headers are answered before any body in every mode whose gateway waits for that; the
    pick comes in the only place where it still counts (llm-d-router#858)."""
    call = peer.call()
    await call.send(make.request_headers(mode=mode))
    if not at_once:
        await call.send(make.request_body(CHAT, end_of_stream=True))
    first = await call.reply()
    assert kind(first) == "request_headers"
    if mode in (make.NONE, make.STREAMED, make.DUPLEX):
        assert picked(first) == A
        return
    assert not first.request_headers.response.HasField("header_mutation")
    await call.send(make.request_body(CHAT, end_of_stream=True))
    second = await call.reply()
    assert kind(second) == "request_body"
    assert picked(second) == A
    call.cancel()


@pytest.mark.parametrize("mode", [make.GRPC, 17])
async def test_a_mode_of_the_future_is_refused_quickly(peer: Peer, mode: int) -> None:
    """UNIMPLEMENTED at once, never silence (llm-d-router#858)."""
    call = peer.call()
    await call.send(make.request_headers(mode=mode))
    assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("mode", [make.DUPLEX, make.BUFFERED, make.STREAMED, None])
async def test_every_phase_is_answered_in_kind(peer: Peer, mode: int | None) -> None:
    """Also around messages without a phase, with unknown fields, and a phase of the future
    (openkruise/agents#834)."""
    call = peer.call()
    unknown = [ProcessingRequest().SerializeToString(), b"\xea\x3f\x03abc", b"\x92\x03\x02\x08\x01"]
    await call.send(make.request_headers(mode=mode))
    if mode is not make.DUPLEX:
        assert kind(await call.reply()) == "request_headers"
    await call.send(*unknown, make.request_body(CHAT, end_of_stream=True))
    if mode is make.DUPLEX:
        assert kind(await call.reply()) == "request_headers"
    assert kind(await call.reply()) == "request_body"
    await call.send(*unknown, make.response_headers())
    assert kind(await call.reply()) == "response_headers"
    for _ in range(3):
        await call.send(make.response_body(b"x"))
        assert kind(await call.reply()) == "response_body"
    await call.send(*unknown, make.trailers("response", {"grpc-status": "0"}))
    assert kind(await call.reply()) == "response_trailers"
    assert await call.silent()


@pytest.mark.parametrize(
    "first",
    [
        make.response_headers({":status": "400"}, end_of_stream=True),
        make.response_headers(
            {":status": "503", "content-type": "text/plain"}, served="10.9.9.9:1"
        ),
        make.response_body(b"no healthy upstream"),
        make.response_body(b"", end_of_stream=True),
        make.trailers("response"),
        make.trailers("request"),
    ],
)
async def test_a_stream_that_begins_anywhere(running: Running, peer: Peer, first: bytes) -> None:
    """The gateway's own reply: a no-op of the same kind, nothing counted (envoy#29440)."""
    call = peer.call()
    await call.send(first)
    reply = await call.reply()
    assert kind(reply) == ProcessingRequest.FromString(first).WhichOneof("request")
    assert not reply.HasField("dynamic_metadata")
    await call.raw.done_writing()
    if kind(reply) == "request_trailers":  # a request without headers can never become complete
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    else:
        assert await call.code() is grpc.StatusCode.OK
    assert inflight(running) == 0
    assert sum(running.worker.picks.by_outcome.values()) == 0


@pytest.mark.parametrize("pieces", [0, 1, 3])
async def test_trailers_end_a_request(running: Running, peer: Peer, pieces: int) -> None:
    """No end mark anywhere: pick, all of the body, then the trailers reply; no trailers invented
    (envoy#27133, envoy#40046)."""
    call = peer.call()
    size = max(1, -(-len(CHAT) // max(pieces, 1)))
    parts = [CHAT[at : at + size] for at in range(0, len(CHAT), size)] if pieces else []
    headers = {":method": "POST", ":path": "/v1/chat/completions" if pieces else "/tokenize"}
    await call.send(make.request_headers(headers))
    await call.send(*(make.request_body(part) for part in parts))
    await call.send(make.trailers("request", {"x-checksum": "1"}))
    assert picked(await call.reply()) == A
    if pieces:
        streamed = _streamed(await call.reply(), "request")
        assert (streamed.body, streamed.end_of_stream) == (CHAT, False)
    assert kind(await call.reply()) == "request_trailers"
    await call.send(make.response_headers({":status": "200", "content-type": "application/grpc"}))
    await call.send(make.response_body(b"x"), make.trailers("response"))
    assert [kind(one) for one in await call.replies(3)] == [
        "response_headers",
        "response_body",
        "response_trailers",
    ]
    assert inflight(running) == 0


@pytest.mark.parametrize(
    ("authority", "body", "status", "reason"),
    [
        (AUTHORITY, b"{", 400, ""),
        (AUTHORITY, b"\xff" * 100, 400, ""),
        (AUTHORITY, b'{"model":"\\ud800"}', 400, ""),
        ("pool-empty-epp.ns1.svc:9002", CHAT, 503, "rejected-no-endpoints"),
    ],
)
async def test_a_refusal_is_the_first_word(
    running: Running, authority: str, body: bytes, status: int, reason: str
) -> None:
    """Nothing is said before it, so that no gateway has gone on already; the stream ends OK
    (agentgateway#2009, llm-d-router#1735)."""
    peer = Peer(running, authority)
    call = peer.call()
    await call.send(make.request_headers(), make.request_body(body, end_of_stream=True))
    reply = await call.reply()
    assert kind(reply) == "immediate_response"
    answer = reply.immediate_response
    headers = {o.header.key: o.header.raw_value.decode() for o in answer.headers.set_headers}
    assert answer.status.code == status
    assert headers["content-type"] == "application/json"
    assert headers.get("x-llm-d-request-dropped-reason", "") == reason
    assert json.loads(answer.body)["error"]["code"] == status
    assert await call.code() is grpc.StatusCode.OK
    await peer.close()


def header_values(message: Any) -> Sequence[HeaderValue]:
    """Every HeaderValue anywhere in a message."""
    found = [message] if isinstance(message, HeaderValue) else []
    for _, value in message.ListFields():
        parts = value if hasattr(value, "add") else [value]
        for part in parts:
            if hasattr(part, "ListFields") and "google.protobuf" not in part.DESCRIPTOR.full_name:
                found.extend(header_values(part))
    return found


async def test_header_values_are_raw_only(running: Running) -> None:
    """In picks on headers and bodies and in refusals; a `value` beside it is an error to newer
    Envoys (envoy#31555, semantic-router#253)."""
    seen = 0
    for authority in (AUTHORITY, "pool-empty-epp.ns1.svc:9002"):
        for mode in (make.DUPLEX, make.BUFFERED, make.NONE):
            peer = Peer(running, authority)
            call = peer.call()
            await call.send(make.request_headers(mode=mode))
            if mode is not make.NONE:
                await call.send(make.request_body(CHAT, end_of_stream=True))
            for _ in range(1 if mode is make.NONE or authority != AUTHORITY else 2):
                reply = await call.reply()
                for value in header_values(reply):
                    seen += 1
                    assert value.raw_value
                    assert not value.value
                if kind(reply) == "immediate_response":
                    break
            await peer.close()
    assert seen >= 6


async def test_headers_are_read_in_either_field(peer: Peer) -> None:
    """`raw_value`, or the older `value`: the path decides that a GET needs no model
    (envoy#29424)."""
    request = ProcessingRequest()
    request.protocol_config.request_body_mode = make.DUPLEX
    for name, value in ((":method", "POST"), (":path", "/tokenize")):
        request.request_headers.headers.headers.add(key=name, value=value)
    call = peer.call()
    await call.send(request.SerializeToString(), make.request_body(b"{}", end_of_stream=True))
    assert picked(await call.reply()) == A
    call.cancel()


@pytest.mark.parametrize("size", [1, 65_535, 65_536, MIB - 1, MIB + 1, 2 * MIB + 1])
async def test_bodies_of_any_size_pass_both_ways(peer: Peer, size: int) -> None:
    """Byte for byte, in replies below 64 KiB, whatever pieces they came in (ai-gateway#805,
    agentgateway#2350, inference-extension#3028)."""
    head, tail = b'{"model":"m","prompt":"', b'"}'
    body = head + b"x" * size + tail
    call = peer.call()
    await call.send(make.request_headers())
    step = 64 * KIB
    for start in range(0, len(body), step):
        await call.send(make.request_body(body[start : start + step]))
    await call.send(make.request_body(b"", end_of_stream=True))
    assert picked(await call.reply()) == A
    got, parts = await call.body("request")
    assert hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
    assert all(len(_streamed(part, "request").body) < 64 * KIB for part in parts)
    await call.send(make.response_headers(), make.response_body(body, end_of_stream=True))
    assert kind(await call.reply()) == "response_headers"
    got, parts = await call.body("response")
    assert hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
    assert all(len(_streamed(part, "response").body) < 64 * KIB for part in parts)


async def test_large_single_messages(running: Running, peer: Peer) -> None:
    """5 MiB in one BUFFERED message and a 6 MiB response message are no matter of the transport's
    own limit (ai-gateway#1209, grpc#23388)."""
    body = b'{"model":"m","input":"%s"}' % (b"x" * 5 * MIB)
    call = peer.call()
    await call.send(make.request_headers(mode=make.BUFFERED))
    assert kind(await call.reply()) == "request_headers"
    await call.send(make.request_body(body, end_of_stream=True))
    assert picked(await call.reply()) == A
    await call.send(make.response_headers())
    assert kind(await call.reply()) == "response_headers"
    await call.send(make.response_body(b"y" * 6 * MIB, end_of_stream=True))
    assert kind(await call.reply()) == "response_body"
    assert inflight(running) == 0


@pytest.mark.parametrize("piece", [64 * KIB, 20 * MIB - 100])
async def test_a_body_over_the_cap_is_413(running: Running, peer: Peer, piece: int) -> None:
    """20 MiB against a cap of 16, in pieces or in one message: the client's fault, told as such or
    (one message beyond all bounds) refused by the transport; the next request is served."""
    body = b'{"model":"m","image":"%s"}' % (b"x" * (20 * MIB))
    call = peer.call()
    await call.send(make.request_headers())
    answer = asyncio.create_task(call.raw.read())
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.UsageError, grpc.aio.AioRpcError):
        for start in range(0, len(body), piece):  # until it is answered and ended
            await call.send(make.request_body(body[start : start + piece]))
    async with asyncio.timeout(DEADLINE):
        await asyncio.wait({answer})
    if piece == 64 * KIB:
        refusal = ProcessingResponse.FromString(answer.result()).immediate_response
        assert refusal.status.code == 413
        assert json.loads(refusal.body)["error"]["code"] == 413
        assert running.worker.picks.by_outcome["413"] == 1
    else:
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        answer.exception()
    after = peer.call()
    await after.send(make.request_headers(end_of_stream=True))
    assert picked(await after.reply()) == A
    after.cancel()


EVIL = {
    "x-gateway-destination-endpoint": "169.254.169.254:80",
    "X-Gateway-Destination-Endpoint": "169.254.169.254:80",
    "x-gateway-destination-endpoint-subset": "169.254.169.254:80",
    "x-gateway-destination-endpoint-served": "169.254.169.254:80",
    "x-epp-fleet-pool": "ns1/pool-b",
    "x-epp-fleet-worker": "worker-7",
    "host": "pool-b-epp.ns1.svc:9002",
}


@pytest.mark.parametrize("mode", [make.DUPLEX, make.BUFFERED, make.STREAMED, make.NONE, None])
@pytest.mark.parametrize("bodyless", [True, False])
@pytest.mark.parametrize("empty", [True, False])
async def test_no_client_header_chooses_anything(
    running: Running, mode: int | None, bodyless: bool, empty: bool
) -> None:
    """In every mode, with and without body, with and without endpoints: the pick overwrites, a
    refusal repeats nothing (llm-d-router#242)."""
    peer = Peer(running, "pool-empty-epp.ns1.svc:9002" if empty else AUTHORITY)
    call = peer.call()
    headers: dict[str, str | bytes] = {":method": "POST", ":path": "/v1/completions", **EVIL}
    await call.send(make.request_headers(headers, end_of_stream=bodyless, mode=mode))
    if not bodyless and mode not in (make.STREAMED, make.NONE):  # those are decided by now
        await call.send(make.request_body(CHAT, end_of_stream=True))
    reply = await call.reply()
    if not bodyless and mode is make.BUFFERED:
        assert not reply.request_headers.response.HasField("header_mutation")
        reply = await call.reply()
    if empty:
        assert reply.immediate_response.status.code == 503
    else:
        assert picked(reply) == A
    assert b"169.254" not in reply.SerializeToString()
    call.cancel()
    await peer.close()


ENDS = ["normal", "400", "before pick", "in body", "after pick", "mid response", "garbage"]


async def one_end(peer: Peer, end: str) -> None:
    call = peer.call()
    await call.send(make.request_headers())
    if end == "before pick":
        call.cancel()
        return
    if end == "garbage":
        await call.send(b"\x22\xff")
        assert await call.code() is grpc.StatusCode.INTERNAL
        return
    if end == "in body":
        await call.send(make.request_body(CHAT[:9]))
        call.cancel()
        return
    await call.send(make.request_body(b"{" if end == "400" else CHAT, end_of_stream=True))
    await call.reply()
    if end == "400":
        assert await call.code() is grpc.StatusCode.OK
        return
    if end != "after pick":
        await call.reply()
        stream = {":status": "200", "content-type": "text/event-stream"}
        await call.send(make.response_headers(stream), make.response_body(b"data: {}\n\n"))
        await call.replies(2)
    if end == "normal":
        await call.send(make.response_body(b"data: [DONE]\n\n", end_of_stream=True))
        await call.reply()
        assert await call.silent()
        assert await call.code() is grpc.StatusCode.OK
    else:
        call.cancel()


async def test_whatever_ends_a_request_nothing_stays_counted(
    running: Running, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    """350 requests, ended in seven ways, all mixed: in flight 0 afterwards, no stream open, each
    outcome counted once, a cancelled stream is no error (ray#37943, atlas#368, envoy#25277,
    envoy#47458, litellm#33404)."""
    caplog.set_level(logging.INFO)
    each = 50
    for _ in range(each // 5):
        async with asyncio.TaskGroup() as tasks:
            for end in ENDS * 5:
                tasks.create_task(one_end(peer, end))
    counters = running.worker.counters
    await until(lambda: counters.streams_open == 0, "every stream is over")
    assert inflight(running) == 0
    outcomes = running.worker.picks.by_outcome
    assert outcomes["400"] == each
    # A client that resets right after its last write may be quicker than the worker's reading.
    assert outcomes["picked"] == 3 * each
    assert len(running.worker.gate) == 0
    ours = [r for r in caplog.records if r.name.startswith(("epp_worker", "fleet"))]
    assert not [r for r in ours if r.levelno >= logging.ERROR]
    assert not running.fatal


async def test_nothing_secret_is_told(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Prompts, keys and broken bodies with a canary: in no log, no answer, no metric, no status
    (inference-extension#1162)."""
    caplog.set_level(logging.DEBUG)
    headers: dict[str, str | bytes] = {
        ":method": "POST",
        ":path": "/v1/completions?key=CANARY-1",
        "authorization": "Bearer CANARY-2",
        "x-canary": b"CANARY-3\xff",
    }
    said = b""
    for authority in (AUTHORITY, "pool-empty-epp.ns1.svc:9002"):
        for body in (
            b'{"model":"m","prompt":"CANARY-4"}',
            b'{"model":5,"prompt":"CANARY-5"}',
            b"CANARY-6",
            b'{"model":"CANARY-7\\ud800"}',
        ):
            peer = Peer(running, authority)
            call = peer.call()
            await call.send(make.request_headers(headers))
            await call.send(make.request_body(body, end_of_stream=True))
            said += (await call.reply()).SerializeToString()
            damaged = peer.call()
            await damaged.send(b"\xffCANARY-8")
            assert await damaged.code() is grpc.StatusCode.INTERNAL
            said += str(await damaged.raw.details()).encode()
            await peer.close()
    assert b"CANARY" not in said
    assert "CANARY" not in "".join(f"{r.getMessage()}{r.__dict__}" for r in caplog.records)
    assert "CANARY" not in repr(running.worker.describe())
    assert "CANARY" not in repr(running.worker.figures())


async def test_client_chosen_names_make_series_up_to_a_bound(running: Running, peer: Peer) -> None:
    """Each request has a model and a path of its own: a pool has 100 rows of models, the others
    are one row more; after them 200 requests add no line (llm-d-router#1625, client_python#937)."""
    page = MetricsPage()

    def lines() -> set[bytes]:
        text = page.render(running.worker.figures())
        return {line.rpartition(b" ")[0] for line in text.splitlines()}

    before: set[bytes] = set()
    for number in range(302):
        if number == 102:
            before = lines()  # the row of the others, too, has begun
        call = peer.call()
        headers: dict[str, str | bytes] = {":method": "POST", ":path": f"/v1/{number}/completions"}
        await call.send(make.request_headers(headers))
        body = b'{"model":"m-%d-\xe4\xbd\xa0"}' % number
        await call.send(make.request_body(body, end_of_stream=True))
        assert picked(await call.reply()) == A
        call.cancel()
    assert lines() == before
    assert sum(line.startswith(b"llm_d_epp_request_total{") for line in before) == 101


def series(running: Running) -> dict[str, float]:
    """All samples of the worker's page."""
    text = MetricsPage().render(running.worker.figures()).decode()
    pairs = (line.rpartition(" ") for line in text.splitlines() if line[:1] != "#")
    return {name: float(value) for name, _, value in pairs}


async def test_what_became_of_picked_requests_is_counted(running: Running, peer: Peer) -> None:
    """A stream that breaks mid-response is `aborted`, once, and never a success; served elsewhere
    and unreadable usage have counters of their own (litellm#33404, dynamo#14693, llm-d#1363)."""
    for served, body, cut in (
        (None, b'{"usage":{"prompt_tokens":1,"completion_tokens":2}}', False),
        ("10.0.0.9:8000", b'{"usage":"oops"}', False),
        (None, b'{"usage":{"prompt_tokens":"1024"}}', True),
    ):
        call = peer.call()
        await call.send(make.request_headers(end_of_stream=True))
        await call.reply()
        await call.send(make.response_headers(served=served), make.response_body(body))
        await call.replies(2)
        if cut:
            call.cancel()
            continue
        await call.send(make.response_body(b"", end_of_stream=True))
        await call.reply()
        assert await call.silent()
    await until(lambda: inflight(running) == 0, "all are over")
    found = series(running)
    assert found['epp_fleet_responses_total{outcome="complete"}'] == 2
    assert found['epp_fleet_responses_total{outcome="aborted"}'] == 1
    assert found["epp_fleet_usage_unreadable_total"] == 1
    assert found['epp_fleet_served_elsewhere_total{namespace="ns1",pool="pool-a"}'] == 1
    assert found['epp_fleet_picks_total{outcome="picked"}'] == 3


@pytest.mark.parametrize("port", ["ext_proc", "health", "internal"])
@pytest.mark.parametrize(
    "greeting",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00" * 64,
    ],
    ids=["TLS", "HTTP/1.1", "nothing"],
)
async def test_a_client_of_another_protocol_fails_fast(
    running: Running, port: str, greeting: bytes
) -> None:
    """TLS or HTTP/1.1 spoken to a plaintext gRPC port: closed at once instead of a silent hang
    (inference-extension#582)."""
    host, _, number = getattr(running.worker.addresses, port).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(number))
    writer.write(greeting)
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(65536):
                continue
    writer.close()
    with contextlib.suppress(ConnectionResetError, BrokenPipeError):
        await writer.wait_closed()

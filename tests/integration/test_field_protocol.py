"""The wire, as gateways of the field use and misuse it: a stock gRPC client against a worker."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.core.v3.base_pb2 import HeaderValue
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from tests.field_peer import (
    AUTHORITY,
    CHAT,
    KIB,
    MIB,
    A,
    Peer,
    _streamed,
    inflight,
    kind,
    owner_of_pool_a,
    picked,
)
from tests.unit import extproc_messages as make
from tests.worker_inprocess import DEADLINE, Running


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with owner_of_pool_a(tmp_path) as worker:
        yield worker


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

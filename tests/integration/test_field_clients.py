"""What clients cannot do to a worker: choose, leave something counted, learn what is secret, make
series without end."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from epp_worker.metrics import MetricsPage
from tests.field_peer import AUTHORITY, CHAT, A, Peer, inflight, owner_of_pool_a, picked
from tests.unit import extproc_messages as make
from tests.worker_inprocess import Running, until


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

"""Streams that end with the pick, behind a real Envoy: no request and no response is harmed."""

import asyncio
import hashlib
import random
from pathlib import Path

import pytest

from epp_worker.process import ONE_WRITE_BYTES
from tests.detaching import EVENTS, bodies, killed, scene
from tests.worker_inprocess import DEADLINE, Gateway, picked_on, until

KIB = 1024


async def test_bodies_come_whole_however_late_the_end(tmp_path: Path) -> None:
    """600 requests of 0 to 200 kB, the end of a third of them late by up to 300 ms: byte for byte,
    and not one stream stays for its response."""
    rng = random.Random(3)
    async with scene(tmp_path) as made, asyncio.timeout(12 * DEADLINE):
        made.delay = lambda: rng.choice((0.002, 0.05, 0.3)) if rng.random() < 0.3 else 0.0
        assert await made.many(bodies(600, 200_000), at_once=40) == []
        figures = made.worker.worker.figures()
        assert figures.responses == {"complete": 0, "aborted": 0, "detached": 600}
        assert figures.streams_open == 0


async def test_large_bodies_stay(tmp_path: Path) -> None:
    """Up to 20 MB they come whole; what is too long for one write is tracked as ever."""
    sizes = (ONE_WRITE_BYTES // 2, ONE_WRITE_BYTES + 1, 1_048_577, 20_000_000)
    async with scene(tmp_path) as made, asyncio.timeout(6 * DEADLINE):
        sent = [b'{"model":"m","prompt":"%s"}' % (b"x" * size) for size in sizes]
        assert await made.many(sent, at_once=1) == []
        worker = made.worker.worker
        await until(lambda: worker.counters.streams_open == 0, "the end of every stream")
        assert worker.figures().responses == {"complete": 3, "aborted": 0, "detached": 1}


async def test_an_early_answer_to_a_large_body_is_not_lost(tmp_path: Path) -> None:
    """A server that answers before it has read the body, as one that refuses its length does."""
    async with scene(tmp_path) as made, asyncio.timeout(6 * DEADLINE):
        made.pods.early = True
        sent = [b'{"model":"m","prompt":"%s"}' % (b"x" * 300 * KIB)] * 40
        assert await made.many(sent, at_once=4) == []
        assert made.worker.worker.figures().responses["detached"] == 0


async def test_requests_without_a_body(tmp_path: Path) -> None:
    """A GET ends with its pick too."""
    async with scene(tmp_path) as made, asyncio.timeout(6 * DEADLINE):
        for _ in range(50):
            async with made.client.get(f"{made.url}/v1/models") as answer:
                assert answer.status == 200
                assert answer.headers["x-hash"] == hashlib.sha256(b"").hexdigest()
                assert await answer.read() == b"data: event\n\n" * EVENTS
        assert made.worker.worker.figures().responses["detached"] == 50


async def test_a_detached_request_still_counts(tmp_path: Path) -> None:
    """Until the model server's own figures say that it is over."""
    async with scene(tmp_path) as made, asyncio.timeout(6 * DEADLINE):
        assert await made.many(bodies(5, 100), at_once=1) == []
        (counts,) = made.worker.worker.figures().inflight.values()
        assert list(counts.values()) == [5]
        (group,) = made.worker.worker.holdings
        (pool,) = group.states.values()
        (state,) = pool.endpoints()
        later = pool.now() + 1.0
        state.scraped(waiting=0.0, running=2.0, kv=0.0, at=later, inflight=state.inflight)
        assert state.inflight == 2
        state.scraped(waiting=0.0, running=0.0, kv=0.0, at=later, inflight=state.inflight)
        assert state.inflight == 0


async def test_drain_detaches_only_while_the_worker_leaves(tmp_path: Path) -> None:
    """So that a drain need not wait for the longest response."""
    async with scene(tmp_path, response_phase="drain") as made, asyncio.timeout(6 * DEADLINE):
        worker = made.worker.worker
        assert await made.many(bodies(3, 100), at_once=1) == []
        await until(lambda: worker.figures().responses["complete"] == 3, "three complete responses")
        worker.set_drain(True)
        assert await made.many(bodies(2, 100), at_once=1) == []
        assert worker.figures().responses["detached"] == 2


@pytest.mark.parametrize(("response_phase", "whole"), [("detach", 60), ("track", 0)])
async def test_a_killed_worker_and_its_responses(
    tmp_path: Path, response_phase: str, whole: int
) -> None:
    """60 responses stream when the worker is killed: detached ones all come to their end, tracked
    ones are all cut."""
    async with asyncio.timeout(12 * DEADLINE):
        complete, cut = await killed(tmp_path, response_phase, 60)
    assert (complete, cut) == (whole, 60 - whole)


async def test_a_gateway_that_is_no_envoy_keeps_its_stream(tmp_path: Path) -> None:
    """Others take the early end for a fault."""
    async with scene(tmp_path) as made, asyncio.timeout(6 * DEADLINE):
        address = made.worker.worker.addresses.ext_proc
        gateway = Gateway(address, "pool-a-epp.ns1.svc:9002")
        plain, envoy = gateway.stream(), gateway.stream((("x-envoy-internal", "true"),))
        assert await picked_on(plain) == await picked_on(envoy) == made.pods.address
        while isinstance(await envoy.read(), bytes):
            continue
        assert made.worker.worker.counters.streams_open == 1
        plain.cancel()
        await gateway.close()


async def test_the_pool_says_otherwise(tmp_path: Path) -> None:
    """The annotation of a pool goes before the fleet's setting."""
    async with (
        scene(tmp_path, annotations={"epp-fleet.dev/response-phase": "track"}) as made,
        asyncio.timeout(6 * DEADLINE),
    ):
        assert await made.many(bodies(3, 100), at_once=1) == []
        worker = made.worker.worker
        await until(lambda: worker.figures().responses["complete"] == 3, "three complete responses")
        assert worker.figures().responses["detached"] == 0

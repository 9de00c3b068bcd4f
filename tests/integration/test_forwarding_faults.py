"""Forwarded streams whose owner dies, hangs, or refuses; and peers that are slow, either side."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from fleet.control.messages import Assign
from fleet.model import Hold
from fleet.settings import WorkerSettings
from tests.neighbours import (
    AUTHORITY,
    POD,
    Context,
    Neighbourhood,
    StubOwner,
    ended,
    neighbourhood,
    settings,
)
from tests.unit import extproc_messages
from tests.worker_inprocess import DEADLINE, Gateway, endpoint_in, until

MIB = 1024 * 1024
PART = 60_000


class Reading:
    """An owner that takes everything and says nothing, until the test lets it answer."""

    def __init__(self) -> None:
        self.got = 0
        self.answer = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def __call__(self, context: Context) -> None:
        answering = asyncio.create_task(self._answer(context))
        try:
            while True:
                await self.reads.wait()
                data = await context.read()
                if not isinstance(data, bytes):
                    return
                self.got += len(data)
        finally:
            answering.cancel()

    async def _answer(self, context: Context) -> None:
        await self.answer.wait()
        await context.write(b"an answer")


@asynccontextmanager
async def stubbed(
    folder: Path, owner: Any, own: WorkerSettings | None = None
) -> AsyncIterator[tuple[Neighbourhood, StubOwner, Gateway]]:
    """worker-9 is played by the test and owns pool a; a gateway of worker-0, which has nothing."""
    async with StubOwner(owner) as stub, neighbourhood(folder, own=own) as made:
        made.peers["worker-9"] = stub.peer
        await made.assign(0, 1)
        await made.assign(1, 1)
        made.owners["pool-a"] = "worker-9"
        made.answer()
        gateway = Gateway(made[0].worker.addresses.ext_proc, AUTHORITY)
        yield made, stub, gateway
        await gateway.close()


async def send(call: Any, size: int, *, whole: bool = True) -> None:
    """Headers and a body of about `size` bytes, in parts; its end only if `whole`."""
    body = b'{"model": "m", "prompt": "' + b"x" * size + b'"}'
    await call.write(extproc_messages.request_headers())
    for start in range(0, len(body), PART):
        end = whole and start + PART >= len(body)
        await call.write(
            extproc_messages.request_body(body[start : start + PART], end_of_stream=end)
        )


def strays(of: Neighbourhood) -> dict[str, int]:
    """worker-0's counts, those that are not 0."""
    return {name: n for name, n in of[0].worker.figures().strays.items() if n}


async def test_an_owner_that_dies_before_the_pick_is_replaced_by_the_next(tmp_path: Path) -> None:
    """All that it was given goes to the one whom the leader names then, once more."""
    owner = Reading()
    async with stubbed(tmp_path, owner) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, MIB)
        await until(lambda: owner.got > MIB, "the body at the owner")
        share = made[1].share(2, pool_a=Hold.OWNER)
        await made.leaders[1].say(Assign(share, True, made.peers))
        made.owners["pool-a"] = "worker-1"
        await stub.die()
        async with asyncio.timeout(DEADLINE):
            data = await call.read()
        assert isinstance(data, bytes)
        assert endpoint_in(data) == POD + ":8000"
        assert strays(made) == {"forwarded": 1}
        assert len(made.asked) == 2
        call.cancel()


async def test_a_group_that_comes_here_meanwhile_is_served_here(tmp_path: Path) -> None:
    """The owner died, and this worker takes its place."""
    owner = Reading()
    async with stubbed(tmp_path, owner) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 1000)
        await until(lambda: owner.got > 1000, "the body at the owner")
        await stub.die()
        share = made[0].share(2, pool_a=Hold.OWNER)
        await made.leaders[0].say(Assign(share, True, made.peers))
        async with asyncio.timeout(DEADLINE):
            data = await call.read()
        assert isinstance(data, bytes)
        assert endpoint_in(data) == POD + ":8000"
        assert strays(made) == {"held": 1}
        call.cancel()


async def test_without_another_owner_the_stream_waits_its_time_out(tmp_path: Path) -> None:
    """It is not given to the dead one again, and the end is UNAVAILABLE."""
    owner = Reading()
    own = settings(stray_hold_seconds=0.8)
    async with stubbed(tmp_path, owner, own) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 1000)
        await until(lambda: owner.got > 1000, "the body at the owner")
        await stub.die()
        code, details = await ended(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "no worker took this route group over in time" in details
        assert strays(made) == {"failed": 1}
        assert stub.calls == 1


async def test_after_the_first_answer_a_lost_owner_ends_the_stream(tmp_path: Path) -> None:
    """The gateway has acted on the answer: nobody else could go on."""
    owner = Reading()
    async with stubbed(tmp_path, owner) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 1000)
        owner.answer.set()
        async with asyncio.timeout(DEADLINE):
            assert await call.read() == b"an answer"
        await stub.die()
        code, details = await ended(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "lost" in details
        assert strays(made) == {"forwarded": 1}


async def test_a_refusal_of_the_call_itself_is_no_status_of_the_owner(tmp_path: Path) -> None:
    """An older worker does not know the method, another is full: the stream waits, then fails."""

    async def refuse(context: Context) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")

    own = settings(stray_hold_seconds=0.5)
    async with stubbed(tmp_path, refuse, own) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 1000)
        assert (await ended(call))[0] is grpc.StatusCode.UNAVAILABLE
        assert stub.calls == 1
        assert strays(made) == {"failed": 1}


async def test_what_cannot_be_kept_for_another_owner_ends_with_the_first(tmp_path: Path) -> None:
    """4 MiB may be kept and 8 MiB were sent: the bound holds, and a lost owner is the end."""
    owner = Reading()
    own = settings(max_buffered_bytes=16 * MIB)
    async with stubbed(tmp_path, owner, own) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 8 * MIB)
        await until(lambda: owner.got > 8 * MIB, "the body at the owner")
        await stub.die()
        code, details = await ended(call)
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "lost" in details
        assert strays(made) == {"failed": 1}


async def test_a_slow_owner_slows_the_gateway(tmp_path: Path) -> None:
    """64 MiB for an owner that does not read: a few are taken of the gateway, none is lost."""
    owner = Reading()
    async with stubbed(tmp_path, owner) as (_, _stub, gateway):
        owner.reads.clear()
        call = gateway.stream()
        written = 0

        async def write() -> None:
            nonlocal written
            await call.write(extproc_messages.request_headers())
            for number in range(64 * MIB // PART):
                last = number == 64 * MIB // PART - 1
                part = extproc_messages.request_body(b"x" * PART, end_of_stream=last)
                await call.write(part)
                written += PART

        writing = asyncio.create_task(write())
        await _stands_still(lambda: written)
        assert 0 < written < 16 * MIB
        owner.reads.set()
        async with asyncio.timeout(2 * DEADLINE):
            await writing
        await until(lambda: owner.got > written, "all of it at the owner")
        call.cancel()


async def test_a_slow_gateway_slows_the_owner(tmp_path: Path) -> None:
    """64 MiB for a gateway that does not read: the owner stands still, and all of it arrives."""
    said = 0
    count = 64 * MIB // PART

    async def talk(context: Context) -> None:
        nonlocal said
        for number in range(count):
            await context.write(number.to_bytes(4, "big") + b"x" * PART)
            said += PART

    async with stubbed(tmp_path, talk) as (made, _, gateway):
        call = gateway.stream()
        await send(call, 1000)
        await _stands_still(lambda: said)
        assert 0 < said < 16 * MIB
        async with asyncio.timeout(4 * DEADLINE):
            for number in range(count):
                data = await call.read()
                assert data[:4] == number.to_bytes(4, "big")
        assert strays(made) == {"forwarded": 1}
        call.cancel()


async def _stands_still(value: Any) -> None:
    """Until a positive value has not changed for half a second."""
    last, since = value(), asyncio.get_running_loop().time()
    async with asyncio.timeout(3 * DEADLINE):
        while not last or asyncio.get_running_loop().time() - since < 0.5:
            await asyncio.sleep(0.02)
            if value() != last:
                last, since = value(), asyncio.get_running_loop().time()


async def test_a_gateway_that_goes_while_the_owner_is_silent(tmp_path: Path) -> None:
    """The owner's call is cancelled, and the stream counts as failed: nobody answered it."""
    owner = Reading()
    async with stubbed(tmp_path, owner) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 1000, whole=False)
        await until(lambda: owner.got > 1000, "the body at the owner")
        call.cancel()
        await until(lambda: stub.over == 1, "the end of the owner's call")
        await until(lambda: strays(made) == {"failed": 1}, "the count")


@pytest.mark.parametrize("came_back", [True, False])
async def test_an_owner_that_comes_back_is_another_one(tmp_path: Path, came_back: bool) -> None:
    """Its new life is tried once more; the old one is not, though the leader names it again."""
    owner = Reading()
    own = settings(stray_hold_seconds=3.0)
    async with stubbed(tmp_path, owner, own) as (made, stub, gateway):
        call = gateway.stream()
        await send(call, 1000)
        await until(lambda: owner.got > 1000, "the body at the owner")
        await stub.die()
        async with StubOwner(owner) as again:
            owner.answer.set()
            if came_back:
                made.peers["worker-9"] = again.peer
            share = made[0].share(2)
            await made.leaders[0].say(Assign(share, True, dict(made.peers)))
            if came_back:
                async with asyncio.timeout(DEADLINE):
                    assert await call.read() == b"an answer"
                assert again.calls == 1
                call.cancel()
            else:
                assert (await ended(call))[0] is grpc.StatusCode.UNAVAILABLE
                assert (stub.calls, again.calls) == (1, 0)

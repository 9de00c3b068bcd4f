"""What a worker of the fleet may have another one hold, however it behaves on the internal port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from epp_worker import neighbourhood
from epp_worker.control.port import MAX_CALLS
from epp_worker.control.questions import QuestionBounds
from epp_worker.forwarding.service import MAX_TAKEN
from epp_worker.handover import service as state
from epp_worker.handover.intake import MAX_FEED_BYTES
from epp_worker.neighbourhood import HOLDS_BOUNDS
from fleet.control.messages import HOLDS_METHOD, STATE_METHOD
from fleet.control.peer_messages import HOLDS, AskHolds
from fleet.control.state_messages import (
    Feed,
    Follow,
    PoolRows,
    StateHello,
    encode_rows,
    encode_state,
)
from tests.worker_inprocess import DEADLINE, TOKEN, Running, group_of, running_worker

OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
ASK = HOLDS.encode(AskHolds("default", "worker-b"))
HELLO = encode_state(StateHello("default", "worker-b", "life-b"))
LARGE = bytes(MAX_FEED_BYTES)


class Peer:
    """Another worker, which behaves as it likes."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel: Any = channel

    def call(self, method: str) -> Any:
        """Begun, with nothing said."""
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        return self._channel.stream_stream(method)(metadata=metadata)

    async def holds(self) -> str:
        """What comes of a question: `answered`, or the status."""
        call = self.call(HOLDS_METHOD)
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.write(ASK)
                if isinstance(said := await call.read(), bytes):
                    return f"answered by {HOLDS.answer(said).worker}"
            return str((await call.code()).name)

    async def state(self, *messages: bytes) -> str:
        """How a call ends on which these are said: the status and its words."""
        call = self.call(STATE_METHOD)
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
                for message in messages:
                    await call.write(message)
            return f"{(await call.code()).name}: {await call.details()}"


@contextlib.asynccontextmanager
async def peer_of(running: Running) -> AsyncIterator[Peer]:
    channel = grpc.aio.insecure_channel(running.worker.addresses.internal, options=OPTIONS)
    try:
        yield Peer(channel)
    finally:
        await channel.close(None)


def test_peers_together_cannot_take_the_call_of_a_leader() -> None:
    """Whatever they open, a leader's call is taken, and one more while an older leader's goes."""
    assert MAX_TAKEN + state.MAX_OPEN + HOLDS_BOUNDS.at_once <= MAX_CALLS - 2


async def test_questions_that_are_never_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are as many as may be, and others are turned away until one of them is over."""
    monkeypatch.setattr(neighbourhood, "HOLDS_BOUNDS", QuestionBounds(600.0, at_once=2))
    async with running_worker(tmp_path) as running, peer_of(running) as peer:
        assert await peer.holds() == "answered by worker-0"
        silent = [peer.call(HOLDS_METHOD) for _ in range(2)]
        async with asyncio.timeout(DEADLINE):
            while await peer.holds() != "RESOURCE_EXHAUSTED":
                await asyncio.sleep(0.01)
            silent[0].cancel()
            while await peer.holds() != "answered by worker-0":
                await asyncio.sleep(0.01)
        silent[1].cancel()


async def test_followers_that_never_say_who_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls count from their beginning."""
    monkeypatch.setattr(state, "MAX_OPEN", 1)
    async with running_worker(tmp_path) as running, peer_of(running) as peer:
        silent = peer.call(STATE_METHOD)
        async with asyncio.timeout(DEADLINE):
            assert isinstance(await silent.read(), bytes)
        assert await peer.state() == "RESOURCE_EXHAUSTED: too many follow this worker"
        silent.cancel()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (
            [encode_state(StateHello("default", "w" * 254, "life"))],
            "INVALID_ARGUMENT: a name is too long",
        ),
        (
            [HELLO, encode_state(Follow(tuple(group_of(f"p{n}") for n in range(5))))],
            "INVALID_ARGUMENT: more than 4 groups followed",
        ),
        (
            [HELLO, encode_state(Feed(rows=(encode_rows(PoolRows(1, slots=(("x", LARGE),))),)))],
            f"INVALID_ARGUMENT: more than {MAX_FEED_BYTES} bytes of state in one message",
        ),
    ],
)
async def test_what_one_call_may_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[bytes], answer: str
) -> None:
    """A name, groups and news have bounds; the call ends that goes beyond, and nothing else."""
    monkeypatch.setattr(state, "MAX_FOLLOWED", 4)
    async with running_worker(tmp_path) as running, peer_of(running) as peer:
        assert await peer.state(*said) == answer
        assert running.fatal == []

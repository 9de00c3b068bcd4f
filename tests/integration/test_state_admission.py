"""Who may follow, and what a worker does with those that it cannot follow."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from epp_worker.handover import streams
from fleet.certificates import Certificates, Role
from fleet.certificates.authority import Pair
from fleet.control.messages import STATE_METHOD
from fleet.control.state_messages import (
    Feed,
    Follow,
    GroupStart,
    PoolNumber,
    PoolRows,
    StateHello,
    StateMessage,
    encode_rows,
    encode_state,
)
from fleet.control.transport import dial
from fleet.model import Hold, PoolId, PoolRef
from tests.prefix_standin import NAME, PrefixStandIn
from tests.state_fleet import Fleet, fleet_of, write_pool
from tests.tls_files import certificates, new_ca
from tests.worker_inprocess import DEADLINE, TOKEN, group_of, until

A, B = "worker-a", "worker-b"
KEY = group_of("pool-a")
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture
def ca() -> Pair:
    """The fleet's."""
    return new_ca()


@contextlib.asynccontextmanager
async def owner(folder: Path, own: Certificates | None = None) -> AsyncIterator[Fleet]:
    """One worker that owns pool-a."""
    write_pool(folder / "m", "pool-a")
    async with fleet_of(folder / "m", A, certificates=own) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        await until(lambda: fleet.group(A).serving, "owner serves")
        yield fleet


def state_call(channel: grpc.aio.Channel, token: str = TOKEN) -> Any:
    untyped: Any = channel
    return untyped.stream_stream(STATE_METHOD)(metadata=(("authorization", f"Bearer {token}"),))


async def asked(channel: grpc.aio.Channel, *messages: StateMessage, token: str = TOKEN) -> str:
    """Say these when it is our turn; the answer: `fed`, or the status and its words."""
    call = state_call(channel, token)
    try:
        async with asyncio.timeout(DEADLINE):
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await call.read() == encode_state(Feed())
                for message in messages:
                    await call.write(encode_state(message))
                if isinstance(await call.read(), bytes):
                    return "fed"
            return f"{(await call.code()).name}: {await call.details()}"
    finally:
        call.cancel()
        await channel.close(None)


def plain(fleet: Fleet) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(fleet.running[A].worker.addresses.internal, options=OPTIONS)


HELLO = StateHello("default", B, "life-b")
FOLLOW = Follow((KEY,))


async def test_a_worker_of_the_fleet_is_fed(tmp_path: Path) -> None:
    """The group is not among what anybody knows worker-b to hold: it may follow all the same."""
    async with owner(tmp_path) as fleet:
        assert await asked(plain(fleet), HELLO, FOLLOW) == "fed"


@pytest.mark.parametrize("token", ["", "another"])
async def test_without_the_token_nothing_is_told(tmp_path: Path, token: str) -> None:
    """Wrong or missing."""
    async with owner(tmp_path) as fleet:
        answer = await asked(plain(fleet), HELLO, FOLLOW, token=token)
        assert answer == "UNAUTHENTICATED: wrong or missing bearer token"


@pytest.mark.parametrize(
    ("first", "answer"),
    [
        (StateHello("other", B, "x"), "PERMISSION_DENIED: this is worker 'worker-a' of fleet"),
        (StateHello("default", A, "x"), "PERMISSION_DENIED: this is worker 'worker-a' of fleet"),
        (FOLLOW, "INVALID_ARGUMENT: StateHello must come first"),
        (StateHello("default", B, "x", format=9), "INVALID_ARGUMENT: a message of format 9"),
    ],
)
async def test_a_wrong_first_message(tmp_path: Path, first: StateMessage, answer: str) -> None:
    """Another fleet's worker, one with our own id, one that does not say who it is."""
    async with owner(tmp_path) as fleet:
        assert (await asked(plain(fleet), first)).startswith(answer)


async def test_a_damaged_message_ends_the_call_and_nothing_else(tmp_path: Path) -> None:
    """It is the sender's fault; the worker goes on, and what the call followed is let go."""
    async with owner(tmp_path) as fleet:
        call = state_call(plain(fleet))
        await call.write(encode_state(HELLO))
        await call.write(encode_state(FOLLOW))
        for _ in ("greeting", "snapshot"):
            assert isinstance(await call.read(), bytes)
        await call.write(b"\xc1")
        async with asyncio.timeout(DEADLINE):
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        await until(lambda: fleet.running[A].worker.figures().state.followers == 0, "let go")
        assert all(state.touched is None for state in fleet.pool(A).endpoints())
        assert fleet.running[A].fatal == []


@pytest.mark.parametrize(
    ("role", "own", "answer"),
    [
        (Role.WORKER, True, "fed"),
        (Role.COORDINATOR, True, "PERMISSION_DENIED: its certificate is for"),
        (Role.WORKER, False, "UNAVAILABLE"),
        (None, True, "UNAVAILABLE"),
    ],
)
async def test_over_tls_only_workers_of_the_fleet(
    tmp_path: Path, ca: Pair, role: Role | None, own: bool, answer: str
) -> None:
    """Another role is sent away before a byte is read; a stranger's certificate, or none, does
    not get as far as a call."""

    def made(role: Role, by: Pair) -> Certificates:
        return certificates(tmp_path / secrets.token_hex(4), by, role, trusted=ca.certificate)

    async with owner(tmp_path, made(Role.WORKER, ca)) as fleet:
        address = fleet.running[A].worker.addresses.internal
        if role is None:
            channel = plain(fleet)
        else:
            theirs = made(role, ca if own else new_ca())
            channel = dial(address, theirs, Role.WORKER, OPTIONS)
        assert (await asked(channel, HELLO, FOLLOW)).startswith(answer)


async def test_workers_follow_over_tls(tmp_path: Path, ca: Pair) -> None:
    """The same as without, with certificates of their role."""
    write_pool(tmp_path / "m", "pool-a")
    own = certificates(tmp_path / "tls", ca, Role.WORKER)
    async with fleet_of(tmp_path / "m", A, B, certificates=own) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        fleet.hold(B, Hold.STANDBY, A, "pool-a")
        await until(lambda: fleet.group(A).serving and fleet.group(B).serving, "served")
        fleet.scraped(A, 1, waiting=4.0)
        await until(lambda: fleet.endpoint(B, 1).waiting == 4.0, "told")


@contextlib.asynccontextmanager
async def older_worker() -> AsyncIterator[str]:
    """An internal port that does not know the method."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_move_does_not_wait_for_an_owner_that_is_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNIMPLEMENTED settles it, not the end of the wait."""
    monkeypatch.setattr(streams, "OPENING_WAIT_SECONDS", 600.0)
    write_pool(tmp_path / "m", "pool-a")
    async with older_worker() as address, fleet_of(tmp_path / "m", A, B) as fleet:
        fleet.introduce(internal={A: address})
        fleet.hold(B, Hold.OPENING, A, "pool-a")
        assert fleet.group(B).awaits_state
        await until(lambda: not fleet.group(B).awaits_state, "settled")


@contextlib.asynccontextmanager
async def fake_owner(serve: Callable[[Any, Any], Awaitable[None]]) -> AsyncIterator[str]:
    """An owner that the test plays."""

    class Handlers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            return grpc.stream_stream_rpc_method_handler(serve)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_a_later_versions_words_are_passed_over(tmp_path: Path) -> None:
    """Messages of an unknown kind, unknown slots and pools change nothing; damaged pieces of a
    known slot are counted."""

    async def serve(_: Any, context: Any) -> None:
        await context.write(encode_state(Feed()))
        await context.read()
        await context.read()
        await context.write(b"\x81\xa4type\xa5novel")
        rows = [
            encode_rows(PoolRows(1, slots=(("tomorrow", b"\xc1"), ("lora", b"\xc1")))),
            encode_rows(PoolRows(77, slots=(("lora", b"\xc1"),))),
        ]
        start = GroupStart(KEY, (PoolNumber(1, pool_id),))
        await context.write(encode_state(Feed((start,), tuple(rows), (KEY,))))
        await context.read()

    write_pool(tmp_path / "m", "pool-a")
    async with fake_owner(serve) as address, fleet_of(tmp_path / "m", A, B) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        pool_id = PoolId(PoolRef("ns1", "pool-a"), fleet.pool(A).pool.uid)
        fleet.introduce(internal={A: address})
        fleet.hold(B, Hold.STANDBY, A, "pool-a")
        figures = fleet.running[B].worker.figures
        await until(lambda: figures().state.snapshots_applied == 1, "snapshot")
        assert figures().state.unreadable == 1
        assert fleet.running[B].fatal == []


async def test_a_follower_that_reads_nothing_neither_blocks_nor_grows_the_owner(
    tmp_path: Path,
) -> None:
    """It follows a pool whose index changes by more than any buffer holds, and never reads: what
    waits for it stays within the bound, and the worker beside it is told as before."""
    write_pool(tmp_path / "m", "pool-a")
    async with fleet_of(tmp_path / "m", A, B) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        index = fleet.pool(A).slots[NAME] = PrefixStandIn()
        fleet.hold(B, Hold.STANDBY, A, "pool-a")
        call = state_call(plain(fleet))
        await call.write(encode_state(StateHello("default", "worker-slow", "life-slow")))
        await call.write(encode_state(FOLLOW))
        figures = fleet.running[A].worker.figures
        await until(lambda: figures().state.followers == 2, "both follow")
        waiting = 0
        async with asyncio.timeout(6 * DEADLINE):
            while not figures().state.snapshots_lagged:
                waiting += 1
                index.add(
                    f"10.0.0.{waiting % 8}:8000", range(waiting * 8000, waiting * 8000 + 8000)
                )
                await asyncio.sleep(0.02)
        fleet.scraped(A, 1, waiting=4.0)
        await until(lambda: fleet.endpoint(B, 1).waiting == 4.0, "the other one is told")
        call.cancel()
        await until(lambda: figures().state.followers == 1, "the slow one has gone")

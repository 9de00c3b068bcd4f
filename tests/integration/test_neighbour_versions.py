"""A worker of one version under a leader of its neighbour, each way, through a planned move, a new
leader and a fail-over: real coordinators, real workers, a real store.

One side writes and reads as the version before or after ours does; see `tests.neighbour_versions`.
"""

import dataclasses
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest

from coordinator import grpc_reach
from fleet.control import codec
from fleet.control.messages import (
    FORMAT,
    Assign,
    AssignPart,
    Down,
    LeaderHello,
    MapUpdate,
    Up,
    WatchMap,
)
from fleet.model import Hold, LeaderInfo, MemberState, Reason, Signal
from fleet.store import codec as stored
from fleet.store.redis import RedisStore
from tests.coordinators import TOKEN, Fleet, until
from tests.neighbour_versions import CHANGES, Version, message_of, rewritten
from tests.valkey import Valkey, running_valkey
from tests.worker_inprocess import (
    Gateway,
    Running,
    TestLeader,
    running_worker,
    write_pool,
)

POOLS = [f"pool-{number}" for number in range(4)]


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
async def fleet(tmp_path: Path, server: Valkey) -> AsyncIterator[Fleet]:
    """Folders and settings of a fleet in which nobody runs yet."""
    server.command("FLUSHALL")
    made = Fleet(tmp_path, server.url)
    for number, name in enumerate(POOLS):
        write_pool(made.manifests, name, f"10.0.0.{number + 1}")
    try:
        yield made
    finally:
        await made.close()


# Sides.


def _read(version: Version, data: bytes, hint: Any) -> bytes:
    """What an older reader makes of ours: it does not know the later fields."""
    return message_of(version, data, hint) if version is Version.BEFORE else data


def workers_are_of(version: Version, patch: pytest.MonkeyPatch) -> None:
    """Workers speak as that version does."""
    patch.setattr(
        "epp_worker.control.server.encode",
        lambda message: message_of(version, codec.encode(message), Up),
    )
    patch.setattr(
        "epp_worker.control.server.decode_down",
        lambda data: codec.decode_down(_read(version, data, Down)),
    )


def coordinators_are_of(version: Version, patch: pytest.MonkeyPatch) -> None:
    """Coordinators speak to workers as that version does, and a leader to its followers."""
    theirs = SimpleNamespace(
        MAX_MESSAGE_BYTES=codec.MAX_MESSAGE_BYTES,
        encode=lambda message: message_of(version, codec.encode(message), Down),
        decode_up=lambda data: codec.decode_up(_read(version, data, Up)),
        decode_map_update=codec.decode_map_update,
    )
    patch.setattr(grpc_reach, "codec", theirs)
    patch.setattr(
        "coordinator.internal.encode",
        lambda update: message_of(version, codec.encode(update), MapUpdate),
    )
    if version is Version.BEFORE:  # reads nothing of what a follower asks for
        patch.setattr("coordinator.internal.decode_watch_map", lambda _: WatchMap())


def shares_told(patch: pytest.MonkeyPatch) -> set[type]:
    """In which kinds of messages leaders tell shares from now on; filled as they do."""
    told: set[type] = set()
    theirs = vars(grpc_reach)["codec"]
    encode = theirs.encode

    def encoded(message: Any) -> Any:
        told.add(type(message))
        return encode(message)

    patch.setattr(theirs, "encode", encoded)
    return told


def store_is_of(version: Version, patch: pytest.MonkeyPatch) -> None:
    """Whatever is written into the store is written as that version does."""

    class Encoder:
        def encode(self, document: object) -> bytes:
            raw = msgspec.json.decode(msgspec.json.encode(document))
            return msgspec.json.encode(rewritten(raw, type(document), CHANGES[version]))

    def pack(number: object, document: object) -> bytes:
        shown = FORMAT if version is Version.BEFORE else FORMAT + 1
        return b"%d %s\n" % (shown, str(number).encode()) + zlib.compress(encoder.encode(document))

    def pack_list(number: object, document: Any, field: str, items: Any, _: object) -> bytes:
        return pack(number, dataclasses.replace(document, **{field: list(items)}))

    encoder = Encoder()
    patch.setattr(stored, "_encoder", encoder)
    patch.setattr(stored, "_pack", pack)
    patch.setattr(stored, "_pack_list", pack_list)


SIDES = {"workers": workers_are_of, "coordinators": coordinators_are_of, "store": store_is_of}


# The whole way.


async def worker_of(stack: AsyncExitStack, fleet: Fleet, name: str) -> Running:
    store = RedisStore(fleet.settings.redis, fleet.settings.fleet)
    return await stack.enter_async_context(
        running_worker(fleet.manifests, worker_id=name, store=store, token=TOKEN)
    )


def owned_by(fleet: Fleet, *names: str) -> bool:
    """Whether all pools are owned and acknowledged, by these alone."""
    return fleet.owned(len(POOLS)) and set(fleet.owners().values()) == {(name,) for name in names}


def owns(worker: Running) -> int:
    """How many groups it was told to own."""
    return worker.worker.holdings.counts()[Hold.OWNER]


async def picks(worker: Running) -> set[str]:
    """A request to each pool through this worker: the endpoints that were picked."""
    found = set()
    for name in POOLS:
        gateway = Gateway(worker.worker.addresses.ext_proc, f"{name}-epp.ns1:9002")
        found.add(await gateway.pick())
        await gateway.close()
    return found


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("side", sorted(SIDES))
async def test_a_move_a_new_leader_and_a_fail_over_beside_a_neighbour(
    fleet: Fleet, side: str, version: Version, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever side is older or newer: groups are handed over and taken over as ever, each pick
    is right, and people are told why somebody died."""
    endpoints = {f"10.0.0.{number + 1}:8000" for number in range(len(POOLS))}
    with monkeypatch.context() as patch:
        SIDES[side](version, patch)
        told = shares_told(patch)
        async with AsyncExitStack() as staying, AsyncExitStack() as leaving:
            first = await worker_of(staying, fleet, "worker-0")
            second = await worker_of(leaving, fleet, "worker-1")
            for name in ("coordinator-0", "coordinator-1"):
                await fleet.coordinator(name)
            await until(lambda: owned_by(fleet, "worker-0", "worker-1"), what="shared")

            # A planned move of all that the first one has.
            await fleet.leader.app.set_drain("worker-0", True)
            await until(lambda: owned_by(fleet, "worker-1"), what="handed over")
            await until(lambda: owns(second) == len(POOLS), what="told so")
            assert await picks(second) == endpoints
            await fleet.leader.app.set_drain("worker-0", False)
            await until(lambda: owned_by(fleet, "worker-0", "worker-1"), what="shared again")
            before = fleet.owners()

            # Another leader, with what it heard as a follower and finds in the store.
            leader = fleet.leader
            fleet.coordinators.remove(leader)
            await leader.stop()
            await until(lambda: fleet.owned(len(POOLS)), what="a new leader")
            assert fleet.owners() == before

            # A death.
            await leaving.aclose()
            await until(lambda: owned_by(fleet, "worker-0"), what="taken over")
            assert fleet.map is not None
            for key, placement in fleet.map.placements.items():
                lost = before[key.service] == ("worker-1",)
                assert (placement.reason is Reason.OWNER_DEAD) == lost
            await until(lambda: owns(first) == len(POOLS), what="told so")
            assert await picks(first) == endpoints
            (dead,) = [s for s in fleet.leader.app.members() if s.state is MemberState.DEAD]
            assert (dead.member.id, dead.signal) == ("worker-1", Signal.REFUSED)
            assert dead.why.startswith("refused: both ports")

    # Parts of shares go to whoever says that it reads them, and only where both sides do.
    assert Assign in told
    assert (AssignPart in told) == (version is Version.AFTER or side == "store")


# Two versions ahead.


async def test_a_worker_two_versions_ahead_is_refused_loudly(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is given nothing; the leader's log names both numbers; all others go on."""

    def theirs(message: Up) -> bytes:
        raw = msgspec.msgpack.decode(codec.encode(message))
        return msgspec.msgpack.encode({**raw, "format": FORMAT + 2})

    async with AsyncExitStack() as stack:
        await worker_of(stack, fleet, "worker-0")
        await fleet.coordinator("coordinator-0")
        await until(lambda: owned_by(fleet, "worker-0"), what="owned")
        monkeypatch.setattr("epp_worker.control.server.encode", theirs)
        newer = await worker_of(stack, fleet, "worker-1")
        says = f"a message of format {FORMAT + 2}; this version (format {FORMAT}) reads formats"
        await until(lambda: says in caplog.text, what="refused in the log")
        assert owns(newer) == 0
        assert set(fleet.owners().values()) == {("worker-0",)}


async def test_a_leader_two_versions_ahead_is_refused_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INVALID_ARGUMENT with both numbers, for the leader and in the worker's log."""
    write_pool(tmp_path, "pool-a", "10.0.0.1")
    async with running_worker(tmp_path) as running:
        leader = TestLeader(running.worker.addresses.internal, 5)
        hello = LeaderHello("default", 5, LeaderInfo("c0", "h:1", "h:2"), format=FORMAT + 2)
        await leader.say(hello)
        assert await leader.end() is grpc.StatusCode.INVALID_ARGUMENT
        says = f"format {FORMAT + 2}; this version (format {FORMAT}) reads formats 1 to"
        assert says in str(await leader.call.details())
        assert says in caplog.text
        assert running.worker.holdings.seen.epoch == 0
        await leader.close()

"""The coordinator's internal port: who may read the map from it, and when."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest

from coordinator.internal import MapFeed, start_internal
from coordinator.knowledge import Knowledge
from fleet.control.codec import decode_map_update, encode
from fleet.control.messages import WATCH_MAP_METHOD, MapPart, MapUpdate, WatchMap
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    Reason,
    ShardMap,
)

MAP = ShardMap("f", EpochVersion(3, 1), 0.0, LeaderInfo("c", "h:1", "h:2"), {})
STATUS = MemberStatus(
    Member("w0", "i", Addresses("a:1", "a:2", "a:3", "a:4")), MemberState.ALIVE, None, 1, 0
)


class Port:
    """A served port and the knowledge behind it."""

    def __init__(self) -> None:
        self.knowledge = Knowledge()
        self.leads = True
        self.port = 0

    async def updates(self, token: str, request: bytes = b"") -> AsyncIterator[MapUpdate]:
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel: Any = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options)
        async with channel:
            metadata = (("authorization", f"Bearer {token}"),)
            async for data in channel.unary_stream(WATCH_MAP_METHOD)(request, metadata=metadata):
                yield decode_map_update(data)


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    served = Port()
    feed = MapFeed(served.knowledge, lambda: served.leads)
    server, served.port = await start_internal(feed, token="secret", host="127.0.0.1", port=0)
    yield served
    await server.stop(None)


async def test_a_follower_hears_the_state_then_every_change(port: Port) -> None:
    """The map is sent once per version; statuses come alone when only they change."""
    port.knowledge.learn_map(MAP)
    heard = port.updates("secret")
    assert await anext(heard) == MapUpdate(MAP, ())
    port.knowledge.learn_members([STATUS])
    assert await anext(heard) == MapUpdate(None, (STATUS,))
    newer = replace(MAP, version=EpochVersion(3, 2))
    port.knowledge.learn_map(newer)
    assert await anext(heard) == MapUpdate(newer, (STATUS,))
    await heard.aclose()  # type: ignore[attr-defined]


async def test_a_follower_that_reads_parts_hears_what_changed(port: Port) -> None:
    """Once it has heard everything. One that asks for nothing, as the version before does, hears
    whole maps; one that asks for something unreadable is told so."""
    groups = [GroupKey("ns", f"g{n}", 1) for n in range(4)]
    placed = {g: Placement(g, (), Phase.OWNED, ("w0",), None, Reason.INITIAL, 0.0) for g in groups}
    first = replace(MAP, placements=placed)
    moved = replace(placed[groups[2]], owners=("w1",))
    second = replace(first, version=EpochVersion(3, 2), placements={**placed, groups[2]: moved})
    port.knowledge.learn_map(first)
    heard = port.updates("secret", encode(WatchMap(parts=True)))
    whole = port.updates("secret", encode(WatchMap()))
    assert [(await anext(each)).shard_map for each in (heard, whole)] == [first, first]
    port.knowledge.learn_map(second)
    frame = replace(second, placements={})
    part = MapPart(first.version, frame, (moved,), (), 4)
    assert await anext(heard) == MapUpdate(None, (), part=part)
    assert await anext(whole) == MapUpdate(second, ())
    for each in (heard, whole):
        await each.aclose()  # type: ignore[attr-defined]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(port.updates("secret", b"\xc1"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_slow_follower_gets_the_latest_not_a_queue(port: Port) -> None:
    """What it missed in between is skipped."""
    heard = port.updates("secret")
    await anext(heard)
    for version in range(1, 50):
        port.knowledge.learn_map(replace(MAP, version=EpochVersion(3, version)))
    update = await anext(heard)
    assert update.shard_map is not None
    assert update.shard_map.version == (3, 49)
    await heard.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize("token", ["", "wrong", "secret2"])
async def test_without_the_fleets_token_nothing_is_told(port: Port, token: str) -> None:
    """UNAUTHENTICATED before anything is read or sent."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anext(port.updates(token))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_only_a_leader_feeds(port: Port) -> None:
    """A follower sends its callers away; a leader that loses the lease ends its streams."""
    heard = port.updates("secret")
    await anext(heard)
    port.leads = False
    port.knowledge.learn_map(MAP)
    with pytest.raises(grpc.aio.AioRpcError) as ended:
        await anext(heard)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError):
        await anext(port.updates("secret"))


def test_older_news_are_no_news() -> None:
    """A late message of an old leader never replaces a newer map."""
    knowledge = Knowledge()
    assert knowledge.learn_map(MAP)
    assert not knowledge.learn_map(MAP)
    assert not knowledge.learn_map(replace(MAP, version=EpochVersion(2, 99)))
    assert knowledge.shard_map is MAP
    assert knowledge.revision == 1

"""One publication of 10,000 groups and as many moves: how long the store's server is held."""

import asyncio
import re
from collections.abc import Iterator

from fleet.model import (
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    RingSpec,
    ShardMap,
    share_of,
)
from fleet.settings import RedisSettings
from fleet.store.contract import Guard, Move, Publication
from fleet.store.redis import RedisStore
from tests.bench.rows import Row
from tests.valkey import Valkey, running_valkey

GROUPS = 10_000
WORKERS = tuple(f"worker-{n}" for n in range(100))
ROUNDS = 7
_LEADER = LeaderInfo("coordinator-0", "10.0.0.1:8080", "10.0.0.1:8081")


def _publication(version: EpochVersion, *, moves: int) -> Publication:
    placements = {}
    for n in range(GROUPS):
        group = GroupKey(f"tenant-{n % 50}", f"pool-{n}-epp", 9002)
        placements[group] = Placement(
            group=group,
            pools=(PoolId(PoolRef(group.namespace, f"pool-{n}"), f"uid-{n}"),),
            phase=Phase.OWNED,
            owners=(WORKERS[n % len(WORKERS)],),
            standby=WORKERS[(n + 1) % len(WORKERS)],
            reason=Reason.DRAIN,
            since=1_700_000_000.25 + n / 1000,
        )
    incarnations = dict.fromkeys(WORKERS, "i1")
    addresses = dict.fromkeys(WORKERS, "10.1.0.1:9002")
    shard_map = ShardMap("bench", version, 1.0, _LEADER, placements, incarnations, addresses)
    return Publication(
        shard_map,
        RingSpec("xxh3", 160, dict.fromkeys(WORKERS, 1)),
        {worker: share_of(shard_map, worker) for worker in WORKERS},
        moves=tuple(
            Move(
                str(g), p.owners[0], str(p.standby), "drain", version, p.since, p.since + 1, "done"
            )
            for g, p in list(placements.items())[:moves]
        ),
    )


def _held_ms(server: Valkey) -> float:
    """The server's own time in scripts since CONFIG RESETSTAT."""
    stats = server.command("INFO", "commandstats").decode()
    return (
        sum(int(found) for found in re.findall(r"cmdstat_eval\w*:calls=\d+,usec=(\d+)", stats))
        / 1e3
    )


async def _publish(server: Valkey, *, moves: int) -> tuple[float, float]:
    """Median milliseconds in the server, and bytes of the stream per move."""
    store = RedisStore(RedisSettings(server.url, request_timeout_seconds=10.0), "bench")
    lease = await store.acquire(_LEADER, floor=0, ttl_seconds=600.0, request="r")
    guard = Guard(_LEADER.id, lease.epoch)
    held = []
    for n in range(ROUNDS + 1):
        publication = _publication(EpochVersion(lease.epoch, n + 1), moves=moves)
        server.command("CONFIG", "RESETSTAT")
        await store.publish(guard, publication)
        held.append(_held_ms(server))
    await store.close()
    size = int(server.command("MEMORY", "USAGE", "epp:{bench}:moves", "SAMPLES", "0")[1:])
    return sorted(held[1:])[ROUNDS // 2], size / max(1, moves * (ROUNDS + 1))


def rows() -> Iterator[Row]:
    """Figures of a publication."""
    for moves in (1, GROUPS):
        with running_valkey() as server:
            held, size = asyncio.run(_publish(server, moves=moves))
        yield Row(f"publication, {moves} moves: server held", held, "ms", 10.0)
    yield Row("stored move", size, "bytes")

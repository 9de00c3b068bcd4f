"""What stays behind: 200,000 streams cancelled at random points, and twenty bodies of 10 MiB."""

import asyncio
import itertools
import random
import statistics
from collections.abc import Iterable

from tests.bench.attacked import Attacked, authority
from tests.bench.gateway import GatewayLink, body_of, request
from tests.bench.rows import Row
from tests.http2_peer import grpc
from tests.unit import extproc_messages as make

MIB = 1024 * 1024
_STREAMS = 200_000
_WARM = 100_000
"""So many until the allocator has its fill: what it takes from then on stays."""
_PARTS = 5
"""Of which the median counts: the allocator takes memory in steps."""
_AT_ONCE = 100
_BODIES = 20
_PER_SECOND = 50

_NEVER = 1 << 40
_STEPS = (
    make.request_headers(),
    make.request_body(body_of(2048)),
    make.request_body(b"", end_of_stream=True),
    make.response_headers({":status": "200", "content-type": "text/event-stream"}),
    *(make.response_body(b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'),) * 4,
)
"""A chat completion, as long as somebody listens."""


async def cancel_at_random(
    link: GatewayLink, count: int, rng: random.Random, target: str = authority(0)
) -> None:
    """Begin `count` streams, a hundred at a time; reset each after a number of messages, between
    two of them or within one."""
    for begun in range(0, count, _AT_ONCE):
        ids = []
        for _ in range(min(_AT_ONCE, count - begun)):
            sent = rng.randrange(len(_STEPS) + 1)
            ids.append(link.begin(target, _STEPS[:sent], _NEVER))
            if sent < len(_STEPS) and rng.random() < 0.5:
                whole = grpc(_STEPS[sent])
                link.send(ids[-1], whole[: rng.randrange(1, len(whole))])
        if rng.random() < 0.8:
            await link.round_trip()
        for stream_id in ids:
            link.reset(stream_id)
        await link.round_trip()


async def _leak(worker: Attacked) -> Iterable[Row]:
    rng = random.Random(7)
    link = await GatewayLink.connect(worker.address)
    await cancel_at_random(link, _WARM, rng)
    looks = [worker.look(collect=True)]
    for _ in range(_PARTS):
        await cancel_at_random(link, (_STREAMS - _WARM) // _PARTS, rng)
        looks.append(worker.look(collect=True))
    before, after = looks[0], looks[-1]
    sizes = [look["rss"] for look in looks]
    grown = [more - less for less, more in itertools.pairwise(sizes)]
    slope = statistics.median(grown) / ((_STREAMS - _WARM) // _PARTS) * 1000
    spent = sum(look["cpu"] for look in looks[1:])
    return (
        Row("leak: RSS per 1,000 cancelled streams", slope, "B", target=1000),
        Row("leak: RSS, first to last", sizes[-1] - sizes[0], "B"),
        Row("leak: streams open, requests in flight", after["streams"] + after["inflight"], "", 0),
        Row(
            "leak: blocks of memory more than before", after["blocks"] - before["blocks"], "", 1000
        ),
        Row("leak: objects more than before", after["objects"] - before["objects"], "", 1000),
        Row("leak: CPU per cancelled stream", spent / (_STREAMS - _WARM) * 1e6, "us"),
    )


async def _ask(link: GatewayLink, times: list[float]) -> None:
    small = request(body_of(2048))
    while True:
        times.append(await link.pick(authority(1), small))
        await asyncio.sleep(1 / _PER_SECOND)


async def _bodies(worker: Attacked) -> Iterable[Row]:
    times: list[float] = []
    normal = await GatewayLink.connect(worker.address)
    asking = asyncio.create_task(_ask(normal, times))
    heavy = [await GatewayLink.connect(worker.address) for _ in range(4)]
    big = request(body_of(10 * MIB))
    # What one flood leaves the allocator keeps for the next one: that is no leak.
    await asyncio.gather(*(link.pick(authority(0), big) for link in heavy))
    await asyncio.sleep(1)
    worker.look()
    await asyncio.sleep(1)
    before = worker.look()
    quiet, times[:] = list(times), []
    await asyncio.gather(*(heavy[n % 4].pick(authority(0), big) for n in range(_BODIES)))
    during = worker.look()
    noisy = list(times)
    await asyncio.sleep(2)
    after = worker.look()
    asking.cancel()
    change = (after["rss"] / before["rss"] - 1) * 100
    return (
        Row("bodies: RSS before", before["rss"] / MIB, "MiB"),
        Row("bodies: RSS afterwards", change, "% more", target=10),
        Row("bodies: CPU of the loop in one go, p99", during["turns"][1] * 1e3, "ms", target=15),
        Row("bodies: CPU of the longest turn", during["steps"][2] * 1e3, "ms"),
        Row("bodies: loop lag p99, 20 x 10 MiB", during["lags"][1] * 1e3, "ms"),
        Row("bodies: loop lag p99, quiet", before["lags"][1] * 1e3, "ms"),
        Row("bodies: others' pick p99", sorted(noisy)[len(noisy) * 99 // 100] * 1e3, "ms"),
        Row("bodies: others' pick p99, quiet", sorted(quiet)[len(quiet) * 99 // 100] * 1e3, "ms"),
    )


def rows() -> Iterable[Row]:
    """Of a worker that is fresh each time."""
    # Cancelled as fast as the worker takes them, which is what a bound is there against.
    with Attacked(bounds={"max_unanswered_resets": 10 * _STREAMS}) as worker:
        yield from asyncio.run(_leak(worker))
    with Attacked(max_buffered_bytes=512 * MIB) as worker:
        yield from asyncio.run(_bodies(worker))

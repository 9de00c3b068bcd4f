"""5,000 streams that are cancelled at random points leave nothing (grpc/grpc#43360, #25449, #38499;
envoyproxy/envoy#25277): no gauge, no object, no byte of a budget."""

import gc
import random
from collections import Counter
from pathlib import Path

import pytest

from fleet.settings import BoundSettings
from tests.attack_scene import A, attacked_worker
from tests.bench.gateway import GatewayLink
from tests.bench.leak import cancel_at_random

_STREAMS = 5_000
_WARM = 1_000
_SLACK = 400
"""Objects of one type that caches may have come to hold meanwhile: a tenth of one a stream."""


def counted() -> Counter[str]:
    """Living objects by type."""
    gc.collect()
    return Counter(f"{type(one).__module__}.{type(one).__name__}" for one in gc.get_objects())


@pytest.mark.parametrize("seed", [1, 2])
async def test_cancelled_streams_leave_nothing(tmp_path: Path, seed: int) -> None:
    """After headers, within a body, after the pick, within the response: all are released, and no
    flood is seen in it, since answered streams may be reset for free."""
    rng = random.Random(seed)
    async with attacked_worker(tmp_path, BoundSettings()) as scene:
        link = await GatewayLink.connect(scene.address)
        await cancel_at_random(link, _WARM, rng, target=A)
        before = counted()
        await cancel_at_random(link, _STREAMS - _WARM, rng, target=A)
        grown = {
            name: count - before[name]
            for name, count in counted().items()
            if count > before[name] + _SLACK
        }
        assert grown == {}
        assert not link.lost
        assert sum(scene.running.worker.bounds.hits().values()) == 0
        link.close()
        await scene.nothing_is_held()
        assert scene.running.worker.counters.handler_errors == 0

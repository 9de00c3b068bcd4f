"""Streams that end with the pick: nothing is lost or changed, and nothing is cut by a kill."""

import random
import tempfile
from pathlib import Path

from tests.bench.rows import Row
from tests.detaching import bodies, killed, scene
from tests.soak.estate import say

REQUESTS = 10_000
RESPONSES = 200
EARLY = 1_000
LARGE = b'{"model":"m","prompt":"%s"}' % (b"x" * 300_000)


async def detach() -> list[Row]:
    """See the module."""
    rng = random.Random(3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        async with scene(Path(folder)) as made:
            made.delay = lambda: rng.choice((0.002, 0.05, 0.3)) if rng.random() < 0.3 else 0.0
            faults = await made.many(bodies(REQUESTS, 200_000), at_once=40)
            detached = made.worker.worker.figures().responses["detached"]
            say(f"{detached} of {REQUESTS} detached; faults: {faults[:3]}")
            rows.append(Row("detach: bodies of 0-200 kB, harmed", len(faults), "", 0))
            made.delay = lambda: 0.0
            made.pods.early = True
            lost = await made.many(bodies(EARLY, 200_000), at_once=10)
            rows.append(Row(f"detach: early answers lost, of {EARLY:,}", len(lost), ""))
            lost = await made.many([LARGE] * RESPONSES, at_once=4)
            rows.append(Row("detach: early answers to 300 kB, lost", len(lost), "", 0))
    for phase, target in (("detach", RESPONSES), ("track", None)):
        with tempfile.TemporaryDirectory() as folder:
            whole, _ = await killed(Path(folder), phase, RESPONSES)
        name = f"{phase}: whole after kill -9, of {RESPONSES}"
        rows.append(Row(name, whole, "", target, at_least=True))
    return rows

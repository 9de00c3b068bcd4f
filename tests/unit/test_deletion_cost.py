"""Which worker a scale-down takes first, and how seldom that is written."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.deletion_cost import (
    CLEARLY_HEAVIER,
    LOOK_SECONDS,
    REST_SECONDS,
    DeletionCosts,
    costs_to_write,
    weights_of,
)
from coordinator.worker_pods import WorkerPod, WorkerPods, worker_pod
from fleet.kube.contract import MERGE_PATCH, Raw
from fleet.kube.listwatch_cache import Delta, Key
from fleet.model import (
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Phase,
    Placement,
    Reason,
    ShardMap,
)
from fleet.settings.model import Settings
from tests.fake_api_store import PODS
from tests.memory_kube import MemoryApiServer, MemoryKube
from tests.stepped_clock import SteppedClock


def pods(**costs: int | None) -> list[WorkerPod]:
    return [WorkerPod(name, "u", "192.0.2.1", False, False, cost) for name, cost in costs.items()]


@pytest.mark.parametrize(
    ("costs", "weights", "written"),
    [
        # Nobody has a cost yet: the heavier, the dearer; the lightest keeps its 0.
        ({"a": None, "b": None, "c": None}, {"a": 30, "b": 10, "c": 20}, {"a": 2, "c": 1}),
        # The order is right, whatever the numbers.
        ({"a": 700, "b": -3, "c": 9}, {"a": 30, "b": 10, "c": 20}, {}),
        # A worker that owns nothing goes first.
        ({"a": 0, "b": 1}, {"a": 10}, {"a": 1, "b": 0}),
        # All alike: any order will do.
        ({"a": None, "b": None}, {"a": 10, "b": 11}, {}),
        ({"a": 1, "b": 0}, {"a": 10, "b": 11}, {}),
        # Clearly heavier and not dearer.
        ({"a": 1, "b": 0}, {"a": 10, "b": 13}, {"a": 0, "b": 1}),
        ({"a": 1, "b": 1}, {"a": 10, "b": 13}, {"a": 0}),
        ({}, {"a": 1}, {}),
    ],
)
def test_costs_are_written_only_when_the_order_is_wrong(
    costs: dict[str, int | None], weights: dict[str, float], written: dict[str, int]
) -> None:
    """kubernetes/kubernetes#45509: a scale-down must not take the busiest pod."""
    assert costs_to_write(pods(**costs), weights) == written


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"),
        st.tuples(st.none() | st.integers(-5, 5), st.floats(0, 100)),
    )
)
def test_after_writing_the_order_is_right(given_pods: dict[str, tuple[int | None, float]]) -> None:
    """For every pair; and then nothing more is written."""
    weights = {name: weight for name, (_, weight) in given_pods.items()}
    costs = {name: cost for name, (cost, _) in given_pods.items()}
    costs |= costs_to_write(pods(**costs), weights)
    assert costs_to_write(pods(**costs), weights) == {}
    for one, weight in weights.items():
        for other, lighter in weights.items():
            if lighter * CLEARLY_HEAVIER < weight:
                assert (costs[one] or 0) > (costs[other] or 0)


def test_weights_are_owned_groups_and_their_load() -> None:
    """A worker of the map that owns nothing weighs nothing."""
    groups = [GroupKey("ns", name, 1) for name in "xyz"]
    owners = ["a", "a", "b"]
    placements = {
        group: Placement(group, (), Phase.OWNED, (owner,), "c", Reason.INITIAL, 0.0)
        for group, owner in zip(groups, owners, strict=True)
    }
    leader = LeaderInfo("l", "h:1", "h:2")
    shard_map = ShardMap(
        "f", EpochVersion(1, 1), 0.0, leader, placements, incarnations=dict.fromkeys("abc", "i")
    )
    assert weights_of(shard_map, {groups[1]: 2.5}) == {"a": 4.5, "b": 1.0, "c": 0.0}
    assert weights_of(None, {}) == {}


class Counting(MemoryKube):
    def __init__(self, server: MemoryApiServer) -> None:
        super().__init__(server)
        self.patched: list[str] = []

    async def patch(
        self,
        path: str,
        body: Raw,
        *,
        content_type: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        self.patched.append(path.rpartition("/")[2])
        return await super().patch(path, body)


class World:
    """Two pods at an API server, and a leader that writes."""

    def __init__(self) -> None:
        self.clock = SteppedClock()
        self.server = MemoryApiServer()
        self.api = Counting(self.server)
        self.pods = WorkerPods(self.api, Settings(), self.clock, rng=random.Random(1))
        self.weights = {"a": 10.0, "b": 20.0}
        self.leads = True
        for name in "ab":
            self.server.store.put(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": name, "namespace": "epp", "annotations": {"x": "y"}},
                    "status": {"podIP": "192.0.2.1", "phase": "Running"},
                }
            )
        self.hear()

    def hear(self) -> None:
        """The watch tells how the pods are."""
        known = {each.name: each for each in self.pods.living()}
        for raw in self.server.store.all(PODS, lambda raw: True):
            new = worker_pod(raw)
            if known.get(new.name) != new:
                self.pods._told([Delta(Key("epp", new.name), known.get(new.name), new)])

    def costs(self) -> dict[str, int | None]:
        return {
            pod.name: pod.cost
            for pod in map(worker_pod, self.server.store.all(PODS, lambda raw: True))
        }

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        writer = DeletionCosts(self.api, self.pods, self.clock)
        task = asyncio.create_task(writer.run(lambda: self.weights, lambda: self.leads))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_costs_are_written_at_most_once_a_minute() -> None:
    """However often the order changes; other annotations stay."""
    world = World()
    async with world.running():
        await world.clock.step(LOOK_SECONDS)
        assert world.costs() == {"a": None, "b": 1}
        world.hear()
        world.weights = {"a": 30.0, "b": 20.0}
        for _ in range(11):
            await world.clock.step(REST_SECONDS / 12)
        assert world.api.patched == ["b"]
        await world.clock.step(REST_SECONDS / 12 + LOOK_SECONDS)
        await world.clock.step(LOOK_SECONDS)
        assert world.costs() == {"a": 1, "b": 0}
        raw = world.server.store.find(PODS, "epp", "a")
        assert raw["metadata"]["annotations"]["x"] == "y"


async def test_nothing_is_written_at_rest_or_without_the_lead() -> None:
    """An order that stays right costs no request, nor does a leader in doubt."""
    world = World()
    world.leads = False
    async with world.running():
        for _ in range(20):
            await world.clock.step(LOOK_SECONDS)
        world.leads, world.weights = True, {}
        for _ in range(20):
            await world.clock.step(LOOK_SECONDS)
        assert world.api.patched == []


async def test_another_pod_of_the_name_gets_no_cost_that_is_not_its_own() -> None:
    """The patch names the uid; and a fault is no end of the loop."""
    world = World()
    old = world.server.store.find(PODS, "epp", "b")
    world.server.store.put({**old, "metadata": {**old["metadata"], "uid": "another"}})
    async with world.running():
        await world.clock.step(LOOK_SECONDS)
        assert world.costs() == {"a": None, "b": None}
        world.server.available = False
        await world.clock.step(REST_SECONDS + LOOK_SECONDS)
        await world.clock.step(REST_SECONDS + LOOK_SECONDS)
        world.server.available = True
        world.hear()
        for _ in range(3):
            await world.clock.step(REST_SECONDS + LOOK_SECONDS)
        assert world.costs() == {"a": None, "b": 1}

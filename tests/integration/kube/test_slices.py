"""EndpointSlices on a real API server: accepted, fenced, repaired; and nobody else's touched."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from coordinator.election.contract import Term
from coordinator.leader.routekeeping import RouteKeeper
from coordinator.routes.contract import Route
from coordinator.routes.slice_format import IPV4, IPV6, collection, slice_name, slice_path
from coordinator.routes.slices import EndpointSliceRoutes
from fleet.clock import SystemClock
from fleet.errors import RouteError
from fleet.kube.client import KubeClient
from fleet.kube.contract import Raw
from fleet.model import (
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Phase,
    Placement,
    Reason,
    ShardMap,
)
from fleet.settings.model import KubernetesSettings, Settings

CLOCK = SystemClock()
LEADER = LeaderInfo("c0", "h:1", "h:2")
WORKERS = {f"w{number}": f"192.0.2.{number}:9002" for number in range(1, 10)}


class World:
    """A fleet of its own (named as the namespace) on an API server that others use too."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self.kube = kube
        self.namespace = namespace
        self.settings = Settings(
            fleet=namespace, kubernetes=KubernetesSettings(watch_namespaces=namespace)
        )
        self.stale = 0
        self.seen: list[EpochVersion] = []

    def group(self, service: str, port: int = 9002) -> GroupKey:
        return GroupKey(self.namespace, service, port)

    def route(self, service: str, *addresses: str, version: int = 1, epoch: int = 1) -> Route:
        return Route(self.group(service), addresses, EpochVersion(epoch, version))

    def path(self, service: str, port: int = 9002, family: str = IPV4) -> str:
        name = slice_name(self.group(service, port), family, self.namespace)
        return slice_path(self.namespace, name)

    @asynccontextmanager
    async def publisher(
        self, settings: Settings | None = None
    ) -> AsyncIterator[EndpointSliceRoutes]:
        routes = EndpointSliceRoutes(
            self.kube, settings or self.settings, CLOCK, rng=random.Random(1)
        )
        routes.start()
        try:
            yield routes
        finally:
            await routes.close()

    @asynccontextmanager
    async def leader(self, epoch: int = 1) -> AsyncIterator[RouteKeeper]:
        """The leader's hand on the routes, looking four times a second."""

        def count() -> None:
            self.stale += 1

        async with self.publisher() as routes:
            keeper = RouteKeeper(
                routes,
                term=lambda: term(epoch),
                saw=self.seen.append,
                count_stale=count,
                clock=CLOCK,
            )
            watching = asyncio.create_task(keeper.watch(0.25))
            try:
                yield keeper
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def map(self, version: int, owners: dict[GroupKey, str | None], epoch: int = 1) -> ShardMap:
        placements = {
            group: Placement(
                group, (), Phase.OWNED, (owner,) if owner else (), None, Reason.INITIAL, 0.0
            )
            for group, owner in owners.items()
        }
        at = EpochVersion(epoch, version)
        return ShardMap(self.namespace, at, 0.0, LEADER, placements, addresses=WORKERS)

    async def hosts(self, service: str, port: int = 9002) -> list[str]:
        found = await self.kube.get(self.path(service, port))
        return [host for each in found["endpoints"] or () for host in each["addresses"]]

    async def all(self) -> list[Raw]:
        items: list[Raw] = (await self.kube.get(collection(self.namespace)))["items"]
        return items


def term(epoch: int = 1) -> Term:
    return Term(LEADER, epoch, CLOCK.monotonic() + 3.0)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 10.0) -> float:
    """How long the condition took, asked all the time."""
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.01)
    return time.monotonic() - began


@pytest.fixture
def world(kube: KubeClient, namespace: str) -> World:
    return World(kube, namespace)


async def test_a_route_through_its_life(world: World) -> None:
    """Created, changed, emptied, of the other family, removed: all of it is accepted."""
    async with world.publisher() as routes:
        steps: list[tuple[str, ...]] = [
            ("192.0.2.1:9002",),
            ("192.0.2.2:9002", "192.0.2.3:9002"),
            (),
            ("[2001:db8::1]:9002",),
            ("192.0.2.1:9002", "[2001:db8::1]:9002"),
        ]
        for version, addresses in enumerate(steps, 1):
            wanted = world.route("a", *addresses, version=version)
            assert (await routes.write([wanted], term())).written == (wanted.group,)
            assert await routes.read() == {wanted.group: wanted}
        families = sorted(each["addressType"] for each in await world.all())
        assert families == [IPV4, IPV6]
        await routes.remove([world.group("a")], term())
        assert await world.all() == []
        assert await routes.read() == {}


async def test_what_the_server_stores_is_what_we_sent(world: World) -> None:
    """No defaulted field makes our own slice look foreign to a publisher that lists it."""
    wanted = world.route("a", "192.0.2.1:9002")
    async with world.publisher() as routes:
        await routes.write([wanted], term())
    async with world.publisher() as another:
        assert await another.read() == {wanted.group: wanted}
        assert (await another.write([wanted], term())).unchanged == (wanted.group,)


async def test_another_writer_is_repaired_within_a_second(world: World) -> None:
    """Whatever it did: another address, a deletion, a condition, no annotation."""
    path = world.path("a")
    bad: Raw = {"addresses": ["192.0.2.66"], "conditions": {"ready": True}}
    unready: Raw = {"addresses": ["192.0.2.1"], "conditions": {"ready": False}}
    async with world.leader() as keeper:
        await keeper.follow(world.map(1, {world.group("a"): "w1"}))

        async def right() -> bool:
            found = [each for each in await world.all() if each["endpoints"]]
            return [
                (each["addresses"], each["conditions"]["ready"])
                for one in found
                for each in one["endpoints"]
            ] == [(["192.0.2.1"], True)] and is_ours(found[0])

        def is_ours(raw: Raw) -> bool:
            metadata = raw["metadata"]
            of_a = metadata["labels"].get("kubernetes.io/service-name") == "a"
            return of_a and "annotations" in metadata

        patches: list[Any] = [
            {"endpoints": [bad]},
            {"endpoints": [unready]},
            {"endpoints": []},
            {"endpoints": None},
            {"metadata": {"annotations": None}},
            {"metadata": {"labels": {"kubernetes.io/service-name": "elsewhere"}}},
            {"metadata": {"labels": {"epp-fleet.dev/service-port": None}}},
            {"ports": [{"name": "other", "port": 1, "protocol": "TCP"}]},
        ]
        for patch in patches:
            await world.kube.patch(path, patch)
            assert await until(right) < 1.0, patch
        await world.kube.delete(path)
        assert await until(right) < 1.0
    assert world.stale >= 1


async def test_an_old_leaders_write_is_repaired_and_a_new_ones_stays(world: World) -> None:
    """kyverno/kyverno#14984: the epoch in the slice decides."""
    async with world.leader(epoch=5) as keeper, world.publisher() as other:
        await keeper.follow(world.map(1, {world.group("a"): "w1"}, epoch=5))
        late = world.route("a", "192.0.2.66:9002", epoch=4, version=9)
        assert (await other.write([late], term(4))).refused == (late.group,)
        newer = world.route("a", "192.0.2.77:9002", epoch=6)
        assert (await other.write([newer], term(6))).written == (newer.group,)

        async def looked() -> bool:
            return newer.version in world.seen

        await until(looked)
        assert await world.hosts("a") == ["192.0.2.77"]


def foreign_slice(name: str, service: str, manager: str) -> Raw:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": manager,
            },
        },
        "addressType": IPV4,
        "endpoints": [{"addresses": ["192.0.2.66"]}],
        "ports": [{"name": "x", "port": 1, "protocol": "TCP"}],
    }


async def test_slices_of_other_managers_are_never_touched(world: World) -> None:
    """Not in the same Service, not under the name that ours would have, not another fleet's."""
    at = collection(world.namespace)
    ours = slice_name(world.group("b"), IPV4, world.namespace)
    await world.kube.create(at, foreign_slice("theirs", "a", "somebody.example"))
    await world.kube.create(at, foreign_slice(ours, "b", "somebody.example"))
    second = replace(world.settings, fleet="second")
    async with world.publisher(second) as theirs:
        await theirs.write([world.route("a", "192.0.2.9:9002", epoch=9)], term(9))
    before = {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await world.all()
    }
    async with world.leader() as keeper:
        owners: dict[GroupKey, str | None] = {world.group("a"): "w1", world.group("b"): "w1"}
        await keeper.follow(world.map(1, owners))
        await keeper.follow(world.map(2, {}))
        await keeper.repair()
    after = {
        each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in await world.all()
    }
    assert after == before
    async with world.publisher() as routes:
        with pytest.raises(RouteError, match=ours):
            await routes.write([world.route("b", "192.0.2.1:9002")], term())


async def test_groups_that_are_no_more_lose_their_slices(world: World) -> None:
    """Also those that a former leader left behind."""
    async with world.publisher() as routes:
        left = [world.route(service, "192.0.2.1:9002") for service in ("old", "spoiled")]
        await routes.write(left, term())
    await world.kube.patch(world.path("spoiled"), {"metadata": {"annotations": None}})
    async with world.leader(epoch=2) as keeper:
        await keeper.follow(world.map(1, {world.group("a"): "w1"}, epoch=2))

        async def only_a() -> bool:
            services = {
                each["metadata"]["labels"]["kubernetes.io/service-name"]
                for each in await world.all()
            }
            return services == {"a"}

        assert await until(only_a) < 1.0


async def test_both_layouts(world: World) -> None:
    """A Service per pool, and one Service whose ports lead to different workers."""
    ports = [
        {"name": f"grpc-{number}", "port": number, "appProtocol": "http2"} for number in (1, 2, 3)
    ]
    for name, its in (("single", ports[:1]), ("shared", ports)):
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"ports": its},
        }
        await world.kube.create(f"/api/v1/namespaces/{world.namespace}/services", service)
    owners: dict[GroupKey, str | None] = {
        world.group("single", 1): "w1",
        world.group("shared", 1): "w1",
        world.group("shared", 2): "w2",
        world.group("shared", 3): None,
    }
    async with world.leader() as keeper:
        await keeper.follow(world.map(1, owners))
    seen = {}
    for each in await world.all():
        assert len(each["ports"]) == 1
        labels, port = each["metadata"]["labels"], each["ports"][0]
        key = (labels["kubernetes.io/service-name"], port["name"], port["port"])
        seen[key] = [endpoint["addresses"] for endpoint in each["endpoints"] or ()]
    assert seen == {
        ("single", "grpc-1", 9002): [["192.0.2.1"]],
        ("shared", "grpc-1", 9002): [["192.0.2.1"]],
        ("shared", "grpc-2", 9002): [["192.0.2.2"]],
        ("shared", "grpc-3", 3): [],
    }


async def test_a_thousand_slices(world: World) -> None:
    """Created; a tenth of them moved, as after a worker's death; all stamped by a new leader.

    The times are printed; a busy machine may take several times as long.
    """
    groups = [world.group(f"s{number}") for number in range(1000)]
    first: dict[GroupKey, str | None] = dict.fromkeys(groups, "w1")

    async def all_written(keeper: RouteKeeper, epoch: int) -> bool:
        written = [keeper.written(group) for group in groups]
        return all(each is not None and each.version.epoch == epoch for each in written)

    async with world.leader() as keeper:
        began = time.monotonic()
        await keeper.follow(world.map(1, first))
        await until(lambda: all_written(keeper, 1), 60)
        created = time.monotonic() - began
        began = time.monotonic()
        moved = first | dict.fromkeys(groups[:100], "w2")
        await keeper.follow(world.map(2, moved))
        changed = time.monotonic() - began
        assert world.stale == 0
    async with world.leader(epoch=2) as keeper:
        began = time.monotonic()
        await keeper.take_over(world.map(2, moved))
        await until(lambda: all_written(keeper, 2), 60)
        stamped = time.monotonic() - began
        assert world.stale == 0
    figures = {"1,000 created": created, "100 changed": changed, "1,000 stamped": stamped}
    print("\n" + ", ".join(f"{what} {took:.2f} s" for what, took in figures.items()))  # noqa: T201
    found = await world.all()
    assert len(found) == 1000
    assert {each["metadata"]["annotations"]["epp-fleet.dev/map-version"][:2] for each in found} == {
        "2."
    }

"""Fenced writes of EndpointSlices: conflicts, lost answers, slow servers, ends of terms."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from coordinator.election.contract import Term
from coordinator.routes.contract import Route
from coordinator.routes.slice_format import IPV4, encode, slice_name
from coordinator.routes.slice_metrics import families
from coordinator.routes.slice_writer import ATTEMPTS, STAMPS_IN_FLIGHT
from coordinator.routes.slices import IN_FLIGHT, EndpointSliceRoutes
from fleet.errors import KubeForbidden, KubeThrottled, KubeUnavailable, RouteError
from fleet.kube.contract import Raw
from fleet.model import EpochVersion, GroupKey, LeaderInfo
from fleet.settings.model import Settings
from tests.fake_api_store import SLICES
from tests.memory_kube import MemoryApiServer, MemoryKube

A, B, C = (GroupKey("ns1", name, 9002) for name in "abc")
ONE, TWO = ("192.0.2.1:9002",), ("192.0.2.2:9002",)


class FastClock:
    """Sleeping takes no time but on this clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Watched(MemoryKube):
    """Notes what is sent, and lets a test act before each write."""

    def __init__(self, server: MemoryApiServer) -> None:
        super().__init__(server)
        self.sent: list[str] = []
        self.timeouts: list[float | None] = []
        self.running = self.most = 0
        self.before: Callable[[str], Awaitable[None]] | None = None

    async def _around(self, what: str, timeout: float | None, act: Awaitable[Raw]) -> Raw:
        self.sent.append(what)
        self.timeouts.append(timeout)
        self.running += 1
        self.most = max(self.most, self.running)
        task = asyncio.ensure_future(act)
        try:
            if self.before is not None:
                await self.before(what)
            return await task
        finally:
            task.cancel()
            self.running -= 1

    async def create(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        service = body["metadata"]["labels"]["kubernetes.io/service-name"]
        act = _later(lambda: super(Watched, self).create(path, body))
        return await self._around(f"POST {service}", timeout_seconds, act)

    async def replace(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        service = body["metadata"]["labels"]["kubernetes.io/service-name"]
        act = _later(lambda: super(Watched, self).replace(path, body))
        return await self._around(f"PUT {service}", timeout_seconds, act)


async def _later(act: Callable[[], Awaitable[Raw]]) -> Raw:
    await asyncio.sleep(0)
    return await act()


class World:
    def __init__(self) -> None:
        self.clock = FastClock()
        self.server = MemoryApiServer()
        self.api = Watched(self.server)
        self.routes = self.publisher()

    def publisher(self) -> EndpointSliceRoutes:
        """It knows nothing but what it writes: nobody watches here."""
        return EndpointSliceRoutes(self.api, Settings(), self.clock, rng=random.Random(1))

    def term(self, epoch: int = 2, seconds: float = 3.0) -> Term:
        return Term(LeaderInfo("c", "h:1", "h:2"), epoch, self.clock.now + seconds)

    def put(self, route: Route, **labels: str) -> None:
        """Written by somebody else."""
        raw = encode(route, route.addresses, IPV4, port_name="grpc-9002", fleet="default")
        raw["metadata"]["labels"] |= labels
        self.server.store.put(raw)

    def standing(self, group: GroupKey) -> tuple[list[str], str]:
        raw = self.server.store.find(SLICES, "ns1", slice_name(group, IPV4, "default"))
        hosts = [host for each in raw["endpoints"] for host in each["addresses"]]
        return hosts, raw["metadata"]["annotations"]["epp-fleet.dev/map-version"]


def route(group: GroupKey, addresses: tuple[str, ...], epoch: int = 2, version: int = 1) -> Route:
    return Route(group, addresses, EpochVersion(epoch, version))


async def test_whoever_was_faster_is_read_and_written_over() -> None:
    """A stale copy makes a conflict; the resourceVersion sent is the one that was compared."""
    world = World()
    await world.routes.write([route(A, ONE)], world.term())
    world.put(route(A, ("192.0.2.66:1",), epoch=1, version=9))
    result = await world.routes.write([route(A, TWO, version=2)], world.term())
    assert result.written == (A,)
    assert world.standing(A) == (["192.0.2.2"], "2.2")


async def test_a_write_that_comes_in_between_is_seen() -> None:
    """kyverno/kyverno#14984: compared, then overtaken by a new leader: refused by its epoch."""
    world = World()
    await world.routes.write([route(A, ONE)], world.term())
    world.server.before_write = lambda: world.put(route(A, ONE, epoch=7))
    result = await world.routes.write([route(A, TWO, version=2)], world.term())
    assert (result.refused, result.highest_epoch) == ((A,), 7)
    assert world.standing(A) == (["192.0.2.1"], "7.1")


async def test_a_slice_that_was_there_unknown_to_us_is_compared_first() -> None:
    """The create fails, what stands there is read, and only then overwritten or not."""
    world = World()
    world.put(route(A, ONE, epoch=1))
    world.put(route(B, ONE, epoch=3))
    result = await world.routes.write([route(A, TWO), route(B, TWO)], world.term())
    assert (result.written, result.refused, result.highest_epoch) == ((A,), (B,), 3)


async def test_an_answer_that_is_lost_is_looked_up() -> None:
    """The write landed: it is not sent again."""
    world = World()
    world.server.losing = 1
    assert (await world.routes.write([route(A, ONE)], world.term())).written == (A,)
    assert world.api.sent == ["POST a"]
    world.server.losing = 1
    assert (await world.routes.write([route(A, TWO, version=2)], world.term())).written == (A,)
    assert world.api.sent == ["POST a", "PUT a"]
    assert world.standing(A) == (["192.0.2.2"], "2.2")


async def test_a_request_that_is_lost_is_sent_again() -> None:
    """It did not land, as a look shows."""
    world = World()
    world.server.dropping = 1
    assert (await world.routes.write([route(A, ONE)], world.term())).written == (A,)
    assert world.api.sent == ["POST a", "POST a"]


async def test_a_server_that_does_not_answer_is_left_alone() -> None:
    """What is under way fails, the rest is not tried: a thousand time-outs help nobody."""
    world = World()
    world.server.available = False
    groups = [GroupKey("ns1", f"s{number}", 9002) for number in range(500)]
    with pytest.raises(RouteError, match=r"no answer; and \d+ more"):
        await world.routes.write([route(each, ONE) for each in groups], world.term())
    assert len(world.api.sent) <= IN_FLIGHT


async def test_one_slice_that_always_fails_stops_no_other() -> None:
    """A webhook that fails for one of them answers 500: a few attempts, then it is named."""
    world = World()

    async def fail(what: str) -> None:
        if what == "POST b":
            raise KubeUnavailable("failed calling webhook")

    world.api.before = fail
    with pytest.raises(RouteError, match=r"ns1/b:9002.*webhook"):
        await world.routes.write([route(A, ONE), route(B, ONE), route(C, ONE)], world.term())
    assert world.api.sent.count("POST b") == ATTEMPTS
    assert world.standing(A) == world.standing(C) == (["192.0.2.1"], "2.1")


async def test_what_cannot_be_written_is_not_tried_all_the_time() -> None:
    """The leader asks four times a second; a new address is tried at once."""
    world = World()
    world.put(route(A, ("192.0.2.66:1",), epoch=1), **{"epp-fleet.dev/fleet": "another"})
    for _ in range(40):
        with pytest.raises(RouteError, match="not labelled as ours"):
            await world.routes.write([route(A, ONE)], world.term())
        world.clock.now += 0.25
    assert len(world.api.sent) <= 5
    before = len(world.api.sent)
    with pytest.raises(RouteError, match="not labelled as ours"):
        await world.routes.write([route(A, TWO)], world.term())
    assert len(world.api.sent) == before + 1
    assert figures(world)["epp_fleet_routes_failing"] == 1


def figures(world: World) -> dict[str, float]:
    return {
        sample.name: sample.value for family in families(world.routes) for sample in family.samples
    }


async def test_a_refusal_names_what_is_wrong() -> None:
    """Once, without another attempt."""
    world = World()

    async def forbid(what: str) -> None:
        raise KubeForbidden("may not create endpointslices", status=403)

    world.api.before = forbid
    with pytest.raises(RouteError, match=r"slice ns1/a-9002-4-.*may not create endpointslices"):
        await world.routes.write([route(A, ONE)], world.term())
    assert world.api.sent == ["POST a"]


@pytest.mark.parametrize("label", ["endpointslice.kubernetes.io/managed-by", "epp-fleet.dev/fleet"])
async def test_a_slice_of_another_manager_is_never_touched(label: str) -> None:
    """Not even under the name that ours would have; the others are written."""
    world = World()
    world.put(route(A, ("192.0.2.66:1",), epoch=1), **{label: "somebody"})
    with pytest.raises(RouteError, match="not labelled as ours"):
        await world.routes.write([route(A, ONE), route(B, ONE)], world.term())
    with pytest.raises(RouteError, match="not labelled as ours"):
        await world.routes.remove([A], world.term())
    assert world.standing(A) == (["192.0.2.66"], "1.1")
    assert world.standing(B) == (["192.0.2.1"], "2.1")


@pytest.mark.parametrize(("left", "timeout"), [(3.0, 1.0), (1.0, 0.9), (0.5, 0.45)])
async def test_a_request_never_outlives_the_lease(left: float, timeout: float) -> None:
    """1 s, and less than the lease has left."""
    world = World()
    await world.routes.write([route(A, ONE)], world.term(seconds=left))
    assert world.api.timeouts == [pytest.approx(timeout)]


async def test_a_throttled_server_is_given_its_time() -> None:
    """429 with Retry-After: all requests wait, and then are sent."""
    world = World()
    refused = iter([2.0])

    async def throttle(what: str) -> None:
        for seconds in refused:
            raise KubeThrottled("too many requests", retry_after_seconds=seconds)

    world.api.before = throttle
    began = world.clock.now
    result = await world.routes.write([route(A, ONE), route(B, ONE)], world.term())
    assert result.written == (A, B)
    assert world.clock.now - began >= 2.0
    assert figures(world)["epp_fleet_routes_throttled_total"] == 1
    assert figures(world)["epp_fleet_routes_failing"] == 0


async def test_a_term_that_ends_while_the_server_is_given_its_time_writes_nothing() -> None:
    """It is looked at right before each request."""
    world = World()

    async def throttle(what: str) -> None:
        raise KubeThrottled("too many requests", retry_after_seconds=5.0)

    world.api.before = throttle
    result = await world.routes.write([route(A, ONE), route(B, ONE)], world.term())
    assert result.refused == (A, B)
    assert len(world.api.sent) <= 2
    assert world.server.store.all(SLICES, lambda raw: True) == []


async def test_fifty_are_under_way_in_the_order_given() -> None:
    """No more, no fewer."""
    world = World()
    groups = [GroupKey("ns1", f"s{number}", 9002) for number in range(200)]
    result = await world.routes.write([route(each, ONE) for each in groups], world.term())
    assert result.written == tuple(groups)
    assert world.api.sent == [f"POST s{number}" for number in range(200)]
    assert world.api.most == 50


async def test_stamps_are_few_at_a_time() -> None:
    """Ten thousand of them come at once when a leader begins."""
    world = World()
    groups = [GroupKey("ns1", f"s{number}", 9002) for number in range(100)]
    await world.routes.write([route(each, ONE) for each in groups], world.term())
    world.api.most = 0
    result = await world.routes.write([route(each, ONE, epoch=3) for each in groups], world.term(3))
    assert len(result.written) == 100
    assert world.api.most == STAMPS_IN_FLIGHT


async def test_a_cancelled_write_sends_nothing_more() -> None:
    """When the cancelled task has ended."""
    world = World()
    groups = [GroupKey("ns1", f"s{number}", 9002) for number in range(500)]
    routes = [route(each, ONE) for each in groups]
    task = asyncio.create_task(world.routes.write(routes, world.term()))
    while len(world.api.sent) < 60:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sent, landed = len(world.api.sent), world.server.store.version
    assert world.api.running == 0
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(world.api.sent), world.server.store.version) == (sent, landed)


@pytest.mark.parametrize(
    "labels", [{"kubernetes.io/service-name": "z"}, {"epp-fleet.dev/service-port": "x"}]
)
async def test_a_slice_whose_labels_were_changed_is_made_anew(labels: dict[str, str]) -> None:
    """It is never given from one Service to another, as cluster policies forbid that."""
    world = World()
    world.put(route(A, ("192.0.2.66:1",), epoch=1), **labels)
    uid = world.server.store.all(SLICES, lambda raw: True)[0]["metadata"]["uid"]
    assert (await world.routes.write([route(A, ONE)], world.term())).written == (A,)
    (found,) = world.server.store.all(SLICES, lambda raw: True)
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "a"
    assert found["metadata"]["uid"] != uid


async def test_both_layouts() -> None:
    """Ports of one Service may lead to different workers: a slice for each."""
    world = World()
    other = GroupKey("ns1", "a", 9003)
    await world.routes.write([route(A, ONE), route(other, TWO), route(B, ONE)], world.term())
    found = world.server.store.all(SLICES, lambda raw: True)
    seen = {
        (raw["metadata"]["labels"]["kubernetes.io/service-name"], raw["ports"][0]["name"]): [
            each["addresses"] for each in raw["endpoints"]
        ]
        for raw in found
    }
    assert seen == {
        ("a", "grpc-9002"): [["192.0.2.1"]],
        ("a", "grpc-9003"): [["192.0.2.2"]],
        ("b", "grpc-9002"): [["192.0.2.1"]],
    }


async def test_a_group_that_is_gone_takes_its_slice_with_it() -> None:
    """Known or not; what is not there is unchanged."""
    world = World()
    await world.routes.write([route(A, ONE)], world.term())
    world.put(route(B, ONE, epoch=1))
    result = await world.routes.remove([A, B, C], world.term())
    assert (result.written, result.unchanged) == ((A, B), (C,))
    assert world.server.store.all(SLICES, lambda raw: True) == []

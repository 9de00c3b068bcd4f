"""What every publisher of routes promises: fenced writes, honest answers."""

import asyncio
import fcntl
import json
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from coordinator.election.contract import Term
from coordinator.routes.contract import Route, Routes
from coordinator.routes.eds import EdsRoutes
from coordinator.routes.eds_file import EdsFile
from coordinator.routes.envoy_format import file_name, group_of
from coordinator.routes.slice_format import (
    IPV4,
    collection,
    selector,
    slice_name,
    slice_path,
)
from coordinator.routes.slices import EndpointSliceRoutes
from fleet.errors import RouteError
from fleet.kube.client import open_client
from fleet.kube.contract import KubeApi
from fleet.model import EpochVersion, GroupKey, LeaderInfo
from fleet.settings.model import KubernetesSettings, RouteSettings, Settings
from tests.fake_api_server import FakeApiServer

A, B, C = (GroupKey("ns1", name, 9002) for name in ("a", "b", "c"))
ONE, TWO = ("192.0.2.1:9002",), ("192.0.2.2:9002", "[2001:db8::1]:9002")
"""EndpointSlices take no loopback addresses."""


class RoutesClock:
    """Time that goes on only by being slept; wall time is far from any file's."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


class Place(Protocol):
    """Where routes are published, as the suite handles it."""

    clock: RoutesClock

    def publisher(self) -> Routes:
        """Another coordinator's way to the same routes."""
        ...

    async def spoil(self, group: GroupKey) -> None:
        """Put something there that is no route."""
        ...

    async def settle(self) -> None:
        """Return once every publisher has heard of all that was done so far."""
        ...


class EdsPlace:
    """A folder of EDS files."""

    def __init__(self, folder: Path) -> None:
        self.clock = RoutesClock()
        self.folder = folder

    def publisher(self) -> Routes:
        return EdsRoutes(self.folder, settings=RouteSettings(), clock=self.clock)

    def path(self, group: GroupKey) -> Path:
        return self.folder / file_name(group)

    async def spoil(self, group: GroupKey) -> None:
        self.path(group).write_text('{"resources": [')

    async def settle(self) -> None:
        """A folder is looked at anew each time."""


class SlicePlace:
    """EndpointSlices of one fleet at an API server."""

    def __init__(self, api: KubeApi, settings: Settings) -> None:
        self.clock = RoutesClock()
        self.publishers: list[EndpointSliceRoutes] = []
        self._api = api
        self._settings = settings

    def publisher(self) -> EndpointSliceRoutes:
        made = EndpointSliceRoutes(self._api, self._settings, self.clock, rng=random.Random(1))
        made.start()
        self.publishers.append(made)
        return made

    async def spoil(self, group: GroupKey) -> None:
        name = slice_name(group, IPV4, self._settings.fleet)
        await self._api.patch(
            slice_path(group.namespace, name), {"metadata": {"annotations": None}}
        )

    async def settle(self) -> None:
        params = {"labelSelector": selector(self._settings.fleet)}
        listed = await self._api.get(collection(""), params=params)
        known = {
            (raw["metadata"]["name"], raw["metadata"]["resourceVersion"]) for raw in listed["items"]
        }
        async with asyncio.timeout(10):
            while any(_heard(publisher) != known for publisher in self.publishers):
                await asyncio.sleep(0.001)

    async def empty(self) -> None:
        """Leave nothing behind."""
        params = {"labelSelector": selector(self._settings.fleet)}
        for raw in (await self._api.get(collection(""), params=params))["items"]:
            metadata = raw["metadata"]
            await self._api.delete(slice_path(metadata["namespace"], metadata["name"]))

    async def close(self) -> None:
        for publisher in self.publishers:
            await publisher.close()


def _heard(publisher: EndpointSliceRoutes) -> set[tuple[str, str]]:
    """Names and versions of the slices that its watches know."""
    return {
        (each.name, each.resource_version)
        for watch in publisher._watches
        for each in watch.values.values()
        if each is not None
    }


@pytest.fixture
def eds(tmp_path: Path) -> EdsPlace:
    return EdsPlace(tmp_path / "eds")


@pytest.fixture
async def slices(tmp_path: Path) -> AsyncIterator[SlicePlace]:
    async with FakeApiServer.running() as server:
        kubeconfig = str(server.kubeconfig(tmp_path))
        client = await open_client(KubernetesSettings(kubeconfig=kubeconfig))
        place = SlicePlace(client, Settings())
        try:
            yield place
        finally:
            await place.close()
            await client.close()


@pytest.fixture(params=["eds", "slices"])
def place(request: pytest.FixtureRequest) -> Place:
    made: Place = request.getfixturevalue(request.param)
    return made


def term(place: Place, epoch: int, *, seconds: float = 2.0) -> Term:
    leader = LeaderInfo(f"c{epoch}", "127.0.0.1:8080", "127.0.0.1:8081")
    return Term(leader, epoch, place.clock.monotonic() + seconds)


def route(group: GroupKey, addresses: tuple[str, ...], epoch: int, version: int = 1) -> Route:
    return Route(group, addresses, EpochVersion(epoch, version))


async def test_nothing_is_there_at_first(place: Place) -> None:
    """No routes, no error."""
    assert await place.publisher().read() == {}


async def test_what_is_written_is_read(place: Place) -> None:
    """By anybody; also a route without an address."""
    routes = [route(A, ONE, 1), route(B, TWO, 1), route(C, (), 1)]
    result = await place.publisher().write(routes, term(place, 1))
    assert (result.written, result.unchanged, result.refused) == ((A, B, C), (), ())
    assert result.highest_epoch == 1
    assert await place.publisher().read() == {each.group: each for each in routes}


async def test_a_publisher_sees_what_others_changed(place: Place) -> None:
    """Reading again sees every later write and removal."""
    ours, theirs = place.publisher(), place.publisher()
    await ours.write([route(A, ONE, 1), route(B, ONE, 1)], term(place, 1))
    assert set(await ours.read()) == {A, B}
    await theirs.write([route(A, TWO, 2)], term(place, 2))
    await theirs.remove([B], term(place, 2))
    await place.settle()
    assert await ours.read() == {A: route(A, TWO, 2)}


async def test_a_version_alone_rewrites_nothing(place: Place) -> None:
    """Same addresses, in whatever order, and same epoch: unchanged, with its old version."""
    routes = place.publisher()
    await routes.write([route(A, TWO, 1, 1)], term(place, 1))
    result = await routes.write([route(A, TWO[::-1], 1, 2)], term(place, 1))
    assert (result.written, result.unchanged) == ((), (A,))
    assert await routes.read() == {A: route(A, TWO, 1, 1)}


async def test_a_new_epoch_is_stamped_on_every_route(place: Place) -> None:
    """So that the former leader finds itself refused."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1, 7)], term(place, 1))
    result = await routes.write([route(A, ONE, 2, 1)], term(place, 2))
    assert result.written == (A,)
    assert await routes.read() == {A: route(A, ONE, 2, 1)}


async def test_a_lower_epoch_is_refused(place: Place) -> None:
    """kyverno/kyverno#14984: an ex-leader writes nothing, and learns the epoch that stands."""
    await place.publisher().write([route(A, ONE, 5)], term(place, 5))
    result = await place.publisher().write(
        [route(A, TWO, 4, 99), route(B, TWO, 4, 99)], term(place, 4)
    )
    assert (result.written, result.refused, result.highest_epoch) == ((B,), (A,), 5)
    assert (await place.publisher().read())[A] == route(A, ONE, 5)


async def test_a_lower_version_of_the_same_epoch_is_refused(place: Place) -> None:
    """A write that was overtaken by a later one of the same leader."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1, 3)], term(place, 1))
    result = await routes.write([route(A, TWO, 1, 2)], term(place, 1))
    assert result.refused == (A,)
    assert await routes.read() == {A: route(A, ONE, 1, 3)}


async def test_a_term_that_is_over_writes_nothing(place: Place) -> None:
    """Neither a route nor a removal."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1)], term(place, 1))
    over = term(place, 2, seconds=0.0)
    assert (await routes.write([route(A, TWO, 2), route(B, TWO, 2)], over)).refused == (A, B)
    assert (await routes.remove([A], over)).refused == (A,)
    assert await routes.read() == {A: route(A, ONE, 1)}


async def test_removal_is_fenced_alike(place: Place) -> None:
    """A higher epoch stays; what is not there is unchanged."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1), route(B, ONE, 3)], term(place, 3))
    result = await routes.remove([A, B, C], term(place, 2))
    assert (result.written, result.unchanged, result.refused) == ((A,), (C,), (B,))
    assert result.highest_epoch == 3
    assert set(await routes.read()) == {B}


async def test_a_removed_route_can_be_written_again(place: Place) -> None:
    """A pool that is deleted and comes back."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1)], term(place, 1))
    await routes.remove([A], term(place, 1))
    assert (await routes.write([route(A, ONE, 1)], term(place, 1))).written == (A,)


async def test_an_unreadable_route_counts_as_absent(place: Place) -> None:
    """It is no route to a reader, and the next write repairs it."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1), route(B, ONE, 1)], term(place, 1))
    await place.spoil(A)
    await place.settle()
    assert set(await routes.read()) == {B}
    assert (await routes.write([route(A, ONE, 1)], term(place, 1))).written == (A,)
    assert (await routes.read())[A] == route(A, ONE, 1)


async def test_one_bad_route_stops_no_other(place: Place) -> None:
    """All others are written before the error is raised; it names the route."""
    routes = place.publisher()
    bad = GroupKey("ns1", "../../etc/passwd", 9002)
    with pytest.raises(RouteError, match="etc/passwd"):
        await routes.write([route(bad, ONE, 1), route(A, ONE, 1)], term(place, 1))
    assert set(await routes.read()) == {A}


async def test_many_routes(place: Place) -> None:
    """More than one batch, each once."""
    groups = [GroupKey("ns1", f"svc-{number}", 9002) for number in range(200)]
    routes = place.publisher()
    result = await routes.write([route(each, ONE, 1) for each in groups], term(place, 1))
    assert result.written == tuple(groups)
    assert set(await routes.read()) == set(groups)


# Of EDS files alone.


def test_an_eds_file_is_what_envoy_reads(eds: EdsPlace) -> None:
    """A DiscoveryResponse with one ClusterLoadAssignment, named by the group."""
    asyncio.run(eds.publisher().write([route(A, TWO, 3, 17)], term(eds, 3)))
    kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    assert json.loads(eds.path(A).read_text()) == {
        "version_info": "3.17",
        "type_url": kind,
        "resources": [
            {
                "@type": kind,
                "cluster_name": "ns1/a:9002",
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {
                                "endpoint": {
                                    "address": {
                                        "socket_address": {"address": host, "port_value": 9002}
                                    }
                                }
                            }
                            for host in ("192.0.2.2", "2001:db8::1")
                        ]
                    }
                ],
            }
        ],
    }


def test_file_names_are_reversible() -> None:
    """And nothing but a file of ours is taken for one."""
    assert file_name(A) == "ns1~a~9002.json"
    assert group_of("ns1~a~9002.json") == A
    for name in ("ns1~a~09002.json", "ns1~a.json", ".ns1~a~1.json", "ns1~a~1.json.tmp", "x"):
        assert group_of(name) is None


@contextmanager
def lock_held(eds: EdsPlace, group: GroupKey) -> Iterator[None]:
    """As a coordinator that was paused inside."""
    path = eds.folder / ".locks" / file_name(group)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_a_held_lock_is_passed_over_after_its_wait(
    eds: EdsPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """0.3 s for all held locks together, the free ones first; and it is said."""
    with lock_held(eds, A), lock_held(eds, B):
        routes = [route(each, ONE, 1) for each in (A, B, C)]
        began = eds.clock.now
        result = await eds.publisher().write(routes, term(eds, 1))
    assert result.written == (C, A, B)
    assert 0.3 <= eds.clock.now - began < 0.35
    assert "route lock passed over" in caplog.text


async def test_a_lock_that_is_let_go_is_taken(
    eds: EdsPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Within the wait: nothing is passed over."""
    with lock_held(eds, A):
        task = asyncio.create_task(eds.publisher().write([route(A, ONE, 1)], term(eds, 1)))
        while eds.clock.now < 100.05:
            await asyncio.sleep(0)
    assert (await task).written == (A,)
    assert "passed over" not in caplog.text


async def test_a_writer_that_wakes_before_its_deadline_check_writes_nothing(
    eds: EdsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused under its lock with the comparison behind it: its own clock tells it."""
    commit = EdsFile._commit

    def paused(self: EdsFile, temporary: Path, during: Term) -> bool:
        eds.clock.now += 10.0
        return commit(self, temporary, during)

    monkeypatch.setattr(EdsFile, "_commit", paused)
    result = await eds.publisher().write([route(A, ONE, 1)], term(eds, 1))
    assert result.refused == (A,)
    assert await eds.publisher().read() == {}
    assert [each.name for each in eds.folder.iterdir()] == [".locks"]


async def test_a_writer_paused_after_its_last_check_is_overtaken_and_repaired(
    eds: EdsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one stale write that fencing cannot stop: it lands, is seen, and is written over."""
    rename = EdsFile._rename
    reached, resume = threading.Event(), threading.Event()

    def paused(self: EdsFile, temporary: Path) -> None:
        if not reached.is_set():
            reached.set()
            assert resume.wait(10)
        rename(self, temporary)

    monkeypatch.setattr(EdsFile, "_rename", paused)
    stale = asyncio.create_task(eds.publisher().write([route(A, ONE, 1)], term(eds, 1)))
    assert await asyncio.to_thread(reached.wait, 10)
    leader = eds.publisher()
    assert (await leader.write([route(A, TWO, 2)], term(eds, 2))).written == (A,)
    resume.set()
    assert (await stale).written == (A,)
    assert await leader.read() == {A: route(A, ONE, 1)}
    assert (await leader.write([route(A, TWO, 2)], term(eds, 2))).written == (A,)
    assert await leader.read() == {A: route(A, TWO, 2)}


async def test_files_of_killed_writers_are_cleared_away(eds: EdsPlace) -> None:
    """After a minute; a younger one may still be renamed."""
    await eds.publisher().write([route(A, ONE, 1)], term(eds, 1))
    temporary = eds.folder / ".ns1~a~9002.json.abc.tmp"
    temporary.write_text("x")
    publisher = EdsRoutes(eds.folder, settings=RouteSettings(), clock=LateClock(30.0))
    await publisher.read()
    assert temporary.exists()
    await EdsRoutes(eds.folder, settings=RouteSettings(), clock=LateClock(90.0)).read()
    assert not temporary.exists()


class LateClock(RoutesClock):
    """Wall time that is `ahead` of the machine's by that many seconds."""

    def __init__(self, ahead: float) -> None:
        super().__init__()
        self._ahead = ahead

    def wall(self) -> float:
        return time.time() + self._ahead


async def test_a_folder_that_is_none_is_named(eds: EdsPlace) -> None:
    """Reading and writing both say which folder and why."""
    eds.folder.write_text("a file")
    with pytest.raises(RouteError, match="eds: Not a directory"):
        await eds.publisher().read()
    with pytest.raises(RouteError, match="eds"):
        await eds.publisher().write([route(A, ONE, 1)], term(eds, 1))


async def test_a_cancelled_write_acts_no_more(
    eds: EdsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the cancelled task has ended, no thread writes behind it."""
    groups = [GroupKey("ns1", f"svc-{number}", 9002) for number in range(500)]
    routes = [route(each, ONE, 1) for each in groups]
    task = asyncio.create_task(eds.publisher().write(routes, term(eds, 1)))
    while not eds.folder.exists():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    written = len(await eds.publisher().read())
    assert written < 500
    await asyncio.sleep(0)
    assert len(await eds.publisher().read()) == written

"""Where routes are published, in every way, and how a test spoils them."""

import asyncio
import random
from pathlib import Path
from typing import Protocol

from coordinator.election.contract import Term
from coordinator.routes.contract import Route, Routes
from coordinator.routes.eds import EdsRoutes
from coordinator.routes.envoy_format import file_name
from coordinator.routes.slice_format import IPV4, collection, selector, slice_name, slice_path
from coordinator.routes.slices import EndpointSliceRoutes
from fleet.kube.contract import KubeApi
from fleet.model import EpochVersion, GroupKey, LeaderInfo
from fleet.settings.model import RouteSettings, Settings

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


def term(place: Place, epoch: int, *, seconds: float = 2.0) -> Term:
    leader = LeaderInfo(f"c{epoch}", "127.0.0.1:8080", "127.0.0.1:8081")
    return Term(leader, epoch, place.clock.monotonic() + seconds)


def route(group: GroupKey, addresses: tuple[str, ...], epoch: int, version: int = 1) -> Route:
    return Route(group, addresses, EpochVersion(epoch, version))

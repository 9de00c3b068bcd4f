"""A cluster of pools and Services in this process, seen by a source that a test can hold back."""

import asyncio
import random
from typing import Any

from coordinator.claims import Claims
from coordinator.ownership import Ownership
from coordinator.services import ServiceKeeper
from fleet.errors import KubeError
from fleet.kube.contract import Raw
from fleet.model import Pool, Service
from fleet.settings.model import OwnershipSettings
from fleet.sources.contract import Kind, ObjectKey
from fleet.sources.fields import Field
from fleet.sources.parse import parse_service
from tests.contract.election_worlds import LoopClock
from tests.fake_api_store import CORE_EVENTS, SERVICES, Event
from tests.memory_kube import MemoryApiServer, MemoryKube
from tests.memory_source import MemorySource
from tests.ownership_facts import FLEET, OURS, Slices


def service_fact(raw: Raw) -> Service:
    """A Service as the source shows it."""
    key = ObjectKey(raw["metadata"]["namespace"], raw["metadata"]["name"])
    return parse_service(key, Field(f"Service {key.namespace}/{key.name}", "", raw))


class Api(MemoryKube):
    """Fails the next writes as told.

    Attributes:
        failing: errors that the next writes end in, in order; they do not land.
        writes: `(verb, name)` of every write that was tried.
        busiest: the most writes that were under way at once.
    """

    def __init__(self, server: MemoryApiServer) -> None:
        super().__init__(server)
        self.failing: list[KubeError] = []
        self.writes: list[tuple[str, str]] = []
        self.busiest = 0
        self.seconds = 0.0
        self._busy = 0

    async def _began(self, verb: str, body: Raw) -> None:
        self.writes.append((verb, str(body["metadata"]["name"])))
        self._busy += 1
        self.busiest = max(self.busiest, self._busy)
        await asyncio.sleep(self.seconds)
        self._busy -= 1
        if self.failing:
            raise self.failing.pop(0)

    async def create(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        await self._began("create", body)
        return await super().create(path, body)

    async def replace(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        await self._began("replace", body)
        return await super().replace(path, body)


class Cluster:
    """Pools and Services. Must be made on a running loop.

    Attributes:
        blind: True = the source sees no change of Services.
    """

    def __init__(self, *pools: Pool) -> None:
        self.server = MemoryApiServer()
        self.api = Api(self.server)
        self.source = MemorySource(*pools)
        self.slices = Slices()
        self.blind = False
        settings = OwnershipSettings(controller_name=OURS)
        self.claims = Claims(self.source, Ownership(settings, FLEET), self.slices)
        self.clock = LoopClock()
        self.server.store.listen(self._seen)

    def keeper(self) -> ServiceKeeper:
        """A leader's hand on the Services."""
        return ServiceKeeper(self.api, self.claims, clock=self.clock, rng=random.Random(1))

    def _seen(self, event: Event) -> None:
        if event.resource != SERVICES or self.blind:
            return
        if event.new is None:
            self.source.remove(service_fact(event.last))
        else:
            self.source.put(service_fact(event.new))

    def look(self) -> None:
        """The source sees again."""
        self.blind = False
        now = [service_fact(raw) for raw in self.server.store.all(SERVICES, lambda _: True)]
        gone = [
            each
            for each in self.source.objects(Kind.SERVICE).values()
            if each not in now and isinstance(each, Service)
        ]
        self.source.remove(*gone)
        self.source.put(*now)

    def put(self, raw: Raw) -> Raw:
        """Somebody else writes an object."""
        return self.server.store.put({"apiVersion": "v1", "kind": "Service", **raw})

    def remove(self, name: str) -> None:
        """Somebody deletes a Service."""
        self.server.store.delete(SERVICES, "ns", name)

    def services(self) -> dict[str, Raw]:
        """Every Service by name."""
        found = self.server.store.all(SERVICES, lambda _: True)
        return {str(raw["metadata"]["name"]): raw for raw in found}

    def events(self) -> list[dict[str, Any]]:
        """Every Event, oldest first."""
        found = self.server.store.all(CORE_EVENTS, lambda _: True)
        return sorted(found, key=lambda raw: int(raw["metadata"]["resourceVersion"]))

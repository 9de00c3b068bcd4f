"""Homes of a lease, and coordinators that do nothing but lead, for tests of the election."""

import asyncio
import contextlib
import random
from typing import Protocol

from coordinator.election.candidate import Candidate
from coordinator.election.contract import Election, Standing
from coordinator.election.kube_lease import KubeLeaseElection
from coordinator.election.leadership import Leadership
from coordinator.election.redis import StoreElection
from fleet.errors import KubeNotFound
from fleet.kube.contract import KubeApi
from fleet.model import LeaderInfo
from fleet.settings.model import ElectionSettings
from fleet.store.contract import Store
from fleet.store.memory import MemoryServer, MemoryStore
from tests.contract.store_fixtures import FLEET, ValkeyWorld

SETTINGS = ElectionSettings(
    ttl_seconds=2.0,
    renew_seconds=0.1,
    lease_ttl_seconds=2.0,
    lease_renew_seconds=0.1,
    lease_request_timeout_seconds=0.9,
)


class LoopClock:
    """The event loop's own time, virtual where the test's loop is."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class Home(Protocol):
    """Where a lease lives, seen from the test."""

    def election(self, who: LeaderInfo) -> Election:
        """One candidate's side."""
        ...

    async def empty(self) -> None:
        """The lease is gone, and its epoch with it."""
        ...

    def beside(self) -> "Home":
        """Where another fleet's lease lives: the same place, the same clock."""
        ...


class StoreHome:
    """The lease in a store: in memory, or in a real server."""

    def __init__(self, store: Store, server: MemoryServer | ValkeyWorld) -> None:
        self.store = store
        self._server = server

    def election(self, who: LeaderInfo) -> Election:
        return StoreElection(self.store, who, SETTINGS, LoopClock())

    async def empty(self) -> None:
        self._server.flush()

    def beside(self) -> "StoreHome":
        if isinstance(self._server, MemoryServer):
            server = MemoryServer(self._server.clock)
            return StoreHome(MemoryStore(server.clock, server), server)
        return StoreHome(self._server.store(f"{FLEET}-beside"), self._server)


class KubeHome:
    """A Kubernetes Lease, of whatever API server."""

    def __init__(self, api: KubeApi, fleet: str = "blue") -> None:
        self.api = api
        self.fleet = fleet

    @property
    def path(self) -> str:
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{self.api.namespace}/leases"
        return f"{leases}/epp-fleet-{self.fleet}"

    def election(self, who: LeaderInfo) -> Election:
        return KubeLeaseElection(self.api, who, SETTINGS, self.fleet, LoopClock())

    async def empty(self) -> None:
        with contextlib.suppress(KubeNotFound):
            await self.api.delete(self.path)

    def beside(self) -> "KubeHome":
        return KubeHome(self.api, f"{self.fleet}-beside")


class Coordinator:
    """A candidate that writes down when its leader's work starts and ends."""

    def __init__(self, name: str, home: Home, trace: list[str]) -> None:
        self.info = LeaderInfo(name, f"{name}:8080", f"{name}:8081")
        self.known_epoch = 0
        self.rolled_back: list[Standing] = []
        self._trace = trace
        self.election = home.election(self.info)
        self.candidate = Candidate(
            self.election,
            LoopClock(),
            floor=self._floor,
            lead=self._lead,
            rng=random.Random(name),
            me=name,
            on_rollback=self.rolled_back.append,
        )
        self._task = asyncio.create_task(self.candidate.run())
        self._watch = asyncio.create_task(self.election.watch())

    def leads(self) -> bool:
        leadership = self.candidate.leadership()
        return leadership is not None and leadership.valid()

    @property
    def epoch(self) -> int:
        leadership = self.candidate.leadership()
        return leadership.epoch if leadership is not None else 0

    async def stop(self) -> None:
        """What SIGTERM does."""
        for task in (self._task, self._watch):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _floor(self) -> int:
        return self.known_epoch

    async def _lead(self, leadership: Leadership) -> None:
        self._trace.append(f"{self.info.id} starts {leadership.epoch}")
        try:
            await asyncio.Event().wait()
        finally:
            self._trace.append(f"{self.info.id} ends")


async def until_one_leads(fleet: list[Coordinator], *, seconds: float = 20.0) -> Coordinator:
    """The one that leads, as soon as exactly one does; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            leading = [coordinator for coordinator in fleet if coordinator.leads()]
            assert len(leading) <= 1, "two leaders"
            if leading:
                return leading[0]
            await asyncio.sleep(0.01)

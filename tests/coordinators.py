"""A fleet of real coordinators in this process, over a real store, with fake workers.

Each coordinator has a store client, a manifests source and an EDS folder view of its own, as
separate processes would; only `kill -9` needs processes (tests.coordinator_process).
"""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from coordinator.app import Coordinator, Parts
from coordinator.election.contract import Election
from coordinator.election.kube_lease import KubeLeaseElection
from coordinator.routes.contract import Route
from coordinator.routes.eds import EdsRoutes
from fleet.clock import SystemClock
from fleet.kube.client import KubeClient, open_client
from fleet.model import GroupKey, Hold, LeaderInfo, Phase, Placement, ShardMap
from fleet.settings.model import CoordinatorSettings, KubernetesSettings, RedisSettings, Settings
from fleet.sources.folder import FolderSource
from fleet.store.redis import RedisStore
from tests.fake_worker import FakeWorker

TOKEN = "test-token"
CLOCK = SystemClock()

T = TypeVar("T")


def manifest(name: str, *, namespace: str = "models", uid: str = "") -> str:
    """An InferencePool whose endpoint picker is the Service `<name>-epp`, port 9002."""
    return json.dumps(
        {
            "apiVersion": "inference.networking.k8s.io/v1",
            "kind": "InferencePool",
            "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "targetPorts": [{"number": 8000}],
                "endpointPickerRef": {"name": f"{name}-epp", "port": {"number": 9002}},
            },
        }
    )


def group(name: str) -> GroupKey:
    """The route group of the pool `manifest(name)`."""
    return GroupKey("models", f"{name}-epp", 9002)


async def until(condition: Callable[[], T], *, seconds: float = 10.0, what: str = "condition") -> T:
    """Wait for a real condition; returns its first true value.

    Raises:
        AssertionError: it did not come true in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        await asyncio.sleep(0.005)


class Running:
    """One coordinator that runs until it is stopped.

    Args:
        kube: elects by a Lease of this API server; None = in the store. Closed with the rest.
    """

    def __init__(
        self, name: str, settings: Settings, eds: Path, kube: KubeClient | None = None
    ) -> None:
        self.store = RedisStore(settings.redis, settings.fleet)
        self.source = FolderSource(Path(settings.source.manifests), poll_seconds=0.05, clock=CLOCK)
        self.routes = EdsRoutes(eds, settings=settings.routes, clock=CLOCK)
        self._kube = kube

        def elect(me: LeaderInfo) -> Election:
            assert kube is not None
            return KubeLeaseElection(kube, me, settings.election, settings.fleet, CLOCK)

        parts = Parts(
            self.store,
            self.routes,
            self.source,
            CLOCK,
            random.Random(name),
            None if kube is None else elect,
        )
        self.app = Coordinator(name, settings, TOKEN, parts)
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take part."""
        await self.source.start()
        self._task = asyncio.create_task(self.app.run(self._stop))

    async def stop(self) -> None:
        """As SIGTERM does."""
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self.source.close()
        await self.store.close()
        if self._kube is not None:
            await self._kube.close()

    async def kill(self) -> None:
        """As kill -9, where the lease is a Kubernetes Lease: it is not given up."""
        assert self._kube is not None
        await self._kube.close()
        await self.stop()

    @property
    def map(self) -> ShardMap | None:
        """The newest map known here."""
        return self.app.shard_map()


class Fleet:
    """Coordinators, workers and folders of one test."""

    def __init__(
        self, folder: Path, redis_url: str | RedisSettings, kubeconfig: Path | None = None
    ) -> None:
        self._kubeconfig = kubeconfig
        self.manifests = folder / "manifests"
        self.eds = folder / "eds"
        self.manifests.mkdir()
        self.settings = Settings(
            redis=RedisSettings(redis_url) if isinstance(redis_url, str) else redis_url,
            coordinator=CoordinatorSettings(host="127.0.0.1", http_port=0, internal_port=0),
        )
        self.settings = replace(
            self.settings, source=replace(self.settings.source, manifests=str(self.manifests))
        )
        self.coordinators: list[Running] = []
        self.workers: dict[str, FakeWorker] = {}
        self.store = RedisStore(self.settings.redis, self.settings.fleet)
        self.reader = EdsRoutes(self.eds, settings=self.settings.routes, clock=CLOCK)

    def pools(self, *names: str) -> None:
        """Have exactly these pools."""
        for path in self.manifests.glob("*.yaml"):
            if path.stem not in names:
                path.unlink()
        for name in names:
            (self.manifests / f"{name}.yaml").write_text(manifest(name))

    async def worker(self, name: str) -> FakeWorker:
        """Start one more worker."""
        worker = FakeWorker(name, self.store, TOKEN)
        self.workers[name] = worker
        return await worker.start()

    async def coordinator(self, name: str) -> Running:
        """Start one more coordinator."""
        kube = None
        if self._kubeconfig is not None:
            kube = await open_client(KubernetesSettings(kubeconfig=str(self._kubeconfig)))
        running = Running(name, self.settings, self.eds, kube)
        self.coordinators.append(running)
        await running.start()
        return running

    def leaders(self) -> Sequence[Running]:
        """Who leads; never more than one for long."""
        return [running for running in self.coordinators if running.app.leading()]

    @property
    def leader(self) -> Running:
        """The one that leads."""
        (leader,) = self.leaders()
        return leader

    @property
    def map(self) -> ShardMap | None:
        """The leader's map."""
        leaders = self.leaders()
        return leaders[0].map if leaders else None

    def owners(self) -> dict[str, tuple[str, ...]]:
        """Owners by Service name, as the leader's map says."""
        shard_map = self.map
        placements = {} if shard_map is None else shard_map.placements
        return {key.service: placement.owners for key, placement in placements.items()}

    def owned(self, count: int) -> bool:
        """Whether a leader has published, and all of `count` groups are owned and acknowledged."""
        shard_map = self.map
        return (
            shard_map is not None
            and self.leader.app.id == shard_map.leader.id
            and len(shard_map.placements) == count
            and all(
                placement.phase is Phase.OWNED and self._told(group, placement)
                for group, placement in shard_map.placements.items()
            )
        )

    def _told(self, group: GroupKey, placement: Placement) -> bool:
        """Whether its owners hold the group: of a move the map tells before they do."""
        owners = [self.workers[name] for name in placement.owners if name in self.workers]
        return all(group in worker.holds(Hold.OWNER) for worker in owners)

    async def settled(self, count: int, *, seconds: float = 15.0) -> dict[str, tuple[str, ...]]:
        """Wait until `owned`; returns the owners."""
        await until(lambda: self.owned(count), seconds=seconds, what=f"{count} groups owned")
        return self.owners()

    async def routes(self) -> dict[str, Route]:
        """Routes as gateways see them, by Service name."""
        return {key.service: route for key, route in (await self.reader.read()).items()}

    async def close(self) -> None:
        """End everything."""
        for running in self.coordinators:
            await running.stop()
        for worker in self.workers.values():
            await worker.kill()
        await self.store.close()


@contextlib.asynccontextmanager
async def running_fleet(
    folder: Path,
    redis_url: str | RedisSettings,
    *,
    coordinators: int = 1,
    workers: int = 2,
    pools: int = 6,
    kubeconfig: Path | None = None,
) -> AsyncIterator[Fleet]:
    """A fleet for the length of an `async with` block, placed and acknowledged.

    Args:
        kubeconfig: of the API server that has the Lease; None = the lease is in the store.
    """
    fleet = Fleet(folder, redis_url, kubeconfig)
    try:
        fleet.pools(*[f"pool-{n}" for n in range(pools)])
        for n in range(workers):
            await fleet.worker(f"worker-{n}")
        for n in range(coordinators):
            await fleet.coordinator(f"coordinator-{n}")
        if pools:
            await fleet.settled(pools)
        yield fleet
    finally:
        await fleet.close()

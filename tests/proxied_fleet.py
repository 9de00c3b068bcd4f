"""A fleet of which each process reaches the store by a proxy of its own, and a watch over it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from coordinator.routes.contract import Route
from fleet.model import EpochVersion, MemberState
from fleet.settings.model import ElectionSettings, RedisSettings
from fleet.store.redis import RedisStore
from tests.coordinators import TOKEN, Fleet, Running, until
from tests.fake_worker import FakeWorker
from tests.redis_proxy import RedisProxy

SAMPLE_SECONDS = 0.01


class Watch:
    """What must hold at every moment, looked at a hundred times a second.

    Attributes:
        problems: what was seen that must not be.
        overlap_seconds: for how long two led at once.
    """

    def __init__(self, fleet: Fleet, owners: Mapping[str, tuple[str, ...]]) -> None:
        self.problems: list[str] = []
        self.overlap_seconds = 0.0
        self._fleet = fleet
        self._owners = owners
        self._versions: dict[str, EpochVersion] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        looked = time.monotonic()
        while True:
            now = time.monotonic()
            if len(self._fleet.leaders()) > 1:
                self.overlap_seconds += now - looked
            looked = now
            self._look()
            await asyncio.sleep(SAMPLE_SECONDS)

    def _look(self) -> None:
        for running in self._fleet.coordinators:
            shard_map = running.map
            if shard_map is None:
                continue
            before = self._versions.get(running.app.id, shard_map.version)
            if shard_map.version < before:
                self.problems.append(f"{running.app.id}: {before} -> {shard_map.version}")
            self._versions[running.app.id] = shard_map.version
            owners = {key.service: p.owners for key, p in shard_map.placements.items()}
            for service, owner in self._owners.items():
                if owners.get(service) != owner:
                    self.problems.append(f"{shard_map.version} {service}: {owners.get(service)}")
            if running.app.leading():
                self._dead(running)

    def _dead(self, running: Running) -> None:
        for status in running.app.members():
            if status.state is MemberState.DEAD:
                self.problems.append(f"{running.app.id}: {status.member.id} is dead")


class ProxiedFleet(Fleet):
    """Coordinators and workers by name, each with its proxy.

    Attributes:
        proxies: of coordinators and workers, by name.
    """

    def __init__(
        self, folder: Path, port: int, settings: RedisSettings, election: ElectionSettings
    ) -> None:
        super().__init__(folder, settings)
        self.settings = replace(self.settings, election=election)
        self.proxies: dict[str, RedisProxy] = {}
        self._port = port
        self._redis = settings
        self._stores: list[RedisStore] = []
        self._stack = AsyncExitStack()

    async def worker(self, name: str) -> FakeWorker:
        """Start one more worker."""
        store = RedisStore(replace(self._redis, url=await self._by(name)), self.settings.fleet)
        self._stores.append(store)
        worker = FakeWorker(name, store, TOKEN)
        self.workers[name] = worker
        return await worker.start()

    async def coordinator(self, name: str) -> Running:
        """Start one more coordinator."""
        redis = replace(self._redis, url=await self._by(name))
        self.settings = replace(self.settings, redis=redis)
        return await super().coordinator(name)

    async def _by(self, name: str) -> str:
        proxy = await self._stack.enter_async_context(RedisProxy.before(self._port))
        self.proxies[name] = proxy
        return proxy.url

    def errors(self, kind: str) -> list[int]:
        """Of this kind, by process: the coordinators first."""
        stores = [*(running.store for running in self.coordinators), *self._stores]
        return [store.errors()[kind] for store in stores]

    def known_leaders(self) -> set[str | None]:
        """Who leads, as each coordinator knows from its last look at the lease."""
        leaders = [running.app.leader() for running in self.coordinators]
        return {None if leader is None else leader.id for leader in leaders}

    async def led(self, *, above: int = 0, seconds: float = 20.0) -> Running:
        """Wait until somebody leads in an epoch above this and has published in it."""

        def leader() -> Running | None:
            for running in self.leaders():
                shard_map = running.map
                if shard_map is not None and shard_map.leader.id == running.app.id:
                    return running if shard_map.version.epoch > above else None
            return None

        found = await until(leader, seconds=seconds, what=f"a leader above epoch {above}")
        assert found is not None
        return found

    async def in_store(self, version: EpochVersion, *, seconds: float = 20.0) -> None:
        """Wait until the store has this map or a later one."""
        async with asyncio.timeout(seconds):
            while await self.store.shard_map(version._replace(version=version.version - 1)) is None:
                await asyncio.sleep(0.02)

    async def close(self) -> None:
        """End everything."""
        await super().close()
        for store in self._stores:
            await store.close()
        await self._stack.aclose()


@asynccontextmanager
async def steady(fleet: Fleet, pools: int, *, overlap_seconds: float = 0.0) -> AsyncIterator[None]:
    """Wait until the fleet is settled; at the end nobody was dead or lost a group, no map, share or
    route went back, and no two led.

    Args:
        overlap_seconds: for how long two may lead in all.
    """
    owners = await fleet.settled(pools)
    routes = await fleet.routes()
    watch = Watch(fleet, owners)
    watching = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    assert not watch.problems, watch.problems[:5]
    assert watch.overlap_seconds <= overlap_seconds
    for worker in fleet.workers.values():
        versions = [share.version for share in worker.history]
        assert versions == sorted(set(versions))
    assert _picked(await fleet.routes(), owners) == _picked(routes, owners)


@asynccontextmanager
async def proxied_fleet(
    folder: Path,
    port: int,
    *,
    redis: RedisSettings | None = None,
    election: ElectionSettings | None = None,
    overlap_seconds: float = 0.0,
    coordinators: int = 2,
    workers: int = 2,
    pools: int = 6,
) -> AsyncIterator[ProxiedFleet]:
    """A fleet that is and stays `steady`.

    Args:
        port: of the server; the test itself reaches it without a proxy.
        redis: further settings of every client.
        election: the lease's timers.
    """
    settings = replace(redis or RedisSettings(), url=f"redis://127.0.0.1:{port}/0")
    fleet = ProxiedFleet(folder, port, settings, election or ElectionSettings())
    try:
        fleet.pools(*[f"pool-{n}" for n in range(pools)])
        for n in range(workers):
            await fleet.worker(f"worker-{n}")
        for n in range(coordinators):
            await fleet.coordinator(f"coordinator-{n}")
        async with steady(fleet, pools, overlap_seconds=overlap_seconds):
            yield fleet
    finally:
        await fleet.close()


def _picked(
    routes: Mapping[str, Route], owners: Mapping[str, tuple[str, ...]]
) -> dict[str, object]:
    """Where gateways send the groups that there were from the start."""
    return {service: routes[service].addresses for service in owners}

"""Coordinators: the real `coordinator.app.Coordinator` without its listeners."""

import asyncio
import contextlib
import random
from functools import partial

from coordinator.app import Coordinator, Elect, Parts
from fleet.control.codec import encode
from fleet.control.messages import WATCH_MAP_METHOD
from fleet.model import LeaderInfo
from fleet.settings.model import Settings
from tests.memory_source import MemorySource
from tests.sim.loop import Process, ProcessClock, World
from tests.sim.network import End, Ended, Host, Metadata, Network
from tests.sim.reach import SimReach
from tests.sim.routes import SimRoutes
from tests.sim.store import SimStore
from tests.sim.worker import TOKEN


class CoordinatorLife:
    """One life of a coordinator."""

    def __init__(
        self,
        world: World,
        host: Host,
        settings: Settings,
        network: Network,
        store: SimStore,
        routes: SimRoutes,
        source: MemorySource,
        rng: random.Random,
        process: Process,
        elect: Elect | None = None,
    ) -> None:
        self.world = world
        self.host = host
        self.network = network
        self.process = process
        self.source = source
        parts = Parts(
            store,
            routes,
            source,
            ProcessClock(process),
            rng,
            elect=elect,
            reach=SimReach(process, host.name, network),
        )
        self._make = partial(Coordinator, host.name, settings, TOKEN, parts)
        self.app: Coordinator | None = None
        self._stop: asyncio.Event

    def start(self) -> None:
        """Called outside."""
        self.process.call(self._start)

    def _start(self) -> None:
        self.app = self._make()
        self._stop = asyncio.Event()
        self.host.serve = self._serve
        self.host.listening = True
        self.process.loop.create_task(self._live(self.app), name="coordinator")

    async def _live(self, app: Coordinator) -> None:
        address = self.host.address
        me = LeaderInfo(self.host.name, f"{address}:8080", f"{address}:8081")
        await app.take_part(me, self._stop)
        self.world.later(0.0, self.die)

    def leave(self) -> None:
        """SIGTERM; called outside."""
        self.process.call(lambda: self._stop.set())

    def die(self, *, vanished: bool = False) -> None:
        """The process is no more."""
        if not self.process.alive:
            return
        self.process.kill()
        self.host.gone = vanished
        self.host.listening = False
        self.network.died(self.process, vanished=vanished)

    def leading(self) -> bool:
        """By its own clock, now."""
        return self.process.alive and self.app is not None and self.app.leading()

    def _serve(self, method: str, metadata: Metadata, end: End) -> None:
        if method != WATCH_MAP_METHOD or self.app is None:
            self.network.close(end, Ended("UNIMPLEMENTED"))
            return
        task = self.process.loop.create_task(self._feed(self.app, end), name="map feed")

        def reset() -> None:
            task.cancel()

        end.on_over = reset

    async def _feed(self, app: Coordinator, end: End) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            async with contextlib.aclosing(app.feed.updates(parts=True)) as updates:
                async for update in updates:
                    if end.over is not None:
                        return
                    self.network.send(end, encode(update))
        end.on_over = None
        if end.over is None:
            self.network.close(end, Ended("UNAVAILABLE", "this coordinator does not lead"))

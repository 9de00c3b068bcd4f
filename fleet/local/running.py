"""A whole fleet on this machine: its processes, the source they share, and when it is ready.

Nothing is restarted: a child that dies is reported and the rest goes on, because what the others
make of a death is what a local fleet is there to show. Only before the fleet is ready, a child that
found its port taken is started again on another one.
"""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from fleet.errors import FleetError, SettingsError
from fleet.local import processes, sample
from fleet.local.api import CoordinatorApi
from fleet.local.children import Child, Children, Spec, failure
from fleet.local.envoy_admin import AdminUnavailable, EnvoyAdmin
from fleet.local.envoy_files import EnvoyFiles, picker_clusters
from fleet.local.faults import Unreachable
from fleet.local.gateway import GatewayFollower, envoy_spec
from fleet.local.model_config import write_config
from fleet.local.orphans import remove_orphans
from fleet.local.plan import (
    LOOPBACK,
    Plan,
    RunFolder,
    child_environ,
    make_run_folder,
    write_peers,
    write_settings,
)
from fleet.local.ports import Ports
from fleet.local.processes import Process
from fleet.local.readiness import not_in_gateway, owners_of, without_owner
from fleet.local.state import FleetState
from fleet.local.store import PORT_TRIES, LocalStore
from fleet.local.watches import free_watches, too_many_pools
from fleet.local.world import Say, World
from fleet.model import Pod, Pool, group_pools

READY_SECONDS = 180.0
QUIET_SECONDS = 2.0
LONG_SECONDS = 15.0
"""After this long the logs are pointed at."""

POLL_SECONDS = 0.1


class LocalFleet:
    """One fleet; made by `running_fleet`.

    Attributes:
        folder: the run folder.
        children: all processes.
        api: the coordinators.
        lost: set, with the reason, when the fleet cannot go on.
    """

    def __init__(
        self,
        plan: Plan,
        environ: Mapping[str, str],
        say: Say,
        http: aiohttp.ClientSession,
        ports: Ports,
    ) -> None:
        self._plan, self._say, self._http, self._ports = plan, say, http, ports
        self.folder = make_run_folder(environ)
        self.children = Children(self.folder.logs, child_environ(environ), self._on_death)
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._processes: dict[str, Process] = {}
        self._makers: dict[str, Callable[[], Spec]] = {}
        self._tries: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = False
        self._manifests = plan.options.manifests or self.folder.sample
        self._store = LocalStore(plan.valkey, plan.options.redis_url or "", say)
        self.gateway: str | None = None
        self._world: World | None = None
        self._follower: GatewayFollower | None = None
        self._admin: EnvoyAdmin | None = None
        self._token = secrets.token_urlsafe(32)

    # ------------------------------------------------------------------ starting

    async def start(self) -> None:
        """Start every process, store first; returns when all run, ready or not.

        Raises:
            ChildFailed: a process could not be started at all.
            SettingsError: the Redis that was named refuses us, or there are more pools than Envoy
                can follow.
        """
        for left in await asyncio.to_thread(remove_orphans, self.folder.root.parent):
            self._say(f"removed {left}, left behind by a fleet that was killed")
        if self._plan.options.manifests is None:
            await self._start_sample()
        await self._store.start(self.children, self.folder, self._ports.take)
        write_settings(
            self.folder,
            self._plan.settings,
            redis_url=self._store.url,
            manifests=self._manifests,
            token=self._token,
        )
        await self._start_world()
        if self._plan.envoy is not None:
            await self._start_gateway(self._plan.envoy)
        for number in range(self._plan.options.coordinators):
            await self._start_process(f"coordinator-{number}", processes.coordinator, number)
        for number in range(self._plan.options.workers):
            await self._start_process(f"worker-{number}", processes.worker, number)

    async def _start_sample(self) -> None:
        port = self._ports.take(also_on=sample.hosts())
        config = sample.write_sample(self.folder.sample, port, self._plan.options.speed)
        write_config(self.folder.models, config)
        await self.children.start(processes.models(self.folder))

    async def _start_world(self) -> None:
        poll = self._plan.settings.source.poll_seconds
        self._world = World(self._manifests, poll_seconds=poll, changed=self._changed)
        await self._world.start()
        self._keep(self._world.report(self._say), "manifest problems")

    def _changed(self) -> None:
        if self._follower is not None:
            self._follower.poke()

    async def _start_gateway(self, binary: Path) -> None:
        wanted = self._plan.options.gateway_port

        def make() -> Spec:
            port = self._ports.take() if wanted is None else wanted
            admin_port = self._ports.take()
            self.gateway = f"{LOOPBACK}:{port}"
            self._admin = EnvoyAdmin(self._http, f"{LOOPBACK}:{admin_port}")
            return envoy_spec(binary, files, gateway_port=port, admin_port=admin_port)

        async def live_clusters() -> frozenset[str]:
            if self._admin is None:
                raise AdminUnavailable("the gateway has not been started")
            return frozenset(await self._admin.clusters())

        seconds = self._plan.options.route_timeout_seconds
        watches = await asyncio.to_thread(free_watches)
        pools, _ = self._snapshot()
        if len(pools) > watches:
            raise SettingsError([too_many_pools(len(pools), watches)])
        files = EnvoyFiles(self.folder.envoy, live_clusters, seconds, watches)
        files.prepare()
        await self._start_made("envoy", make)
        self._follower = GatewayFollower(files, self._routes_version, self._snapshot)
        self._keep(self._follower.run(), "gateway files")

    async def _routes_version(self) -> str:
        if self._admin is None:
            raise AdminUnavailable("the gateway has not been started")
        return await self._admin.routes_version()

    async def _start_process(
        self,
        name: str,
        build: Callable[[int, RunFolder, Callable[[], int]], Process],
        number: int,
    ) -> None:
        def make() -> Spec:
            process = build(number, self.folder, self._ports.take)
            self._processes[name] = process
            workers = [one for one in self._processes.values() if one.spec.kind == "worker"]
            write_peers(self.folder, [one.addresses["internal"] for one in workers])
            return process.spec

        await self._start_made(name, make)

    async def _start_made(self, name: str, make: Callable[[], Spec]) -> None:
        self._makers[name] = make
        await self.children.start(make())

    def _keep(self, work: Awaitable[None], name: str) -> None:
        async def guarded() -> None:
            try:
                await work
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the fleet must not go on
                self._lose(f"{name}: {type(error).__name__}: {error}")

        task = asyncio.create_task(guarded(), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------ watching

    def _snapshot(self) -> tuple[list[Pool], list[Pod]]:
        return ([], []) if self._world is None else (self._world.pools(), self._world.pods())

    def _lose(self, reason: str) -> None:
        if not self.lost.done():
            self.lost.set_result(reason)

    def _on_death(self, child: Child) -> None:
        if not self._ready and self._again_elsewhere(child):
            return
        if self._ready:
            self._say(f"{child.name} died ({child.how_it_ended()}); it is not restarted")
        else:
            self._say(failure(child))
        kind = child.spec.kind
        if kind in ("worker", "coordinator") and not self.children.living(kind):
            self._lose(f"all {kind}s are lost")
        elif not self._ready and kind in ("gateway", "models"):
            self._lose(f"{child.name} ended before the fleet was ready")

    def _again_elsewhere(self, child: Child) -> bool:
        """Start it again on other ports, if that is what it died of."""
        make = self._makers.get(child.name)
        tries = self._tries.get(child.name, 1)
        fixed = child.name == "envoy" and self._plan.options.gateway_port is not None
        if make is None or fixed or tries >= PORT_TRIES or not processes.says_port_taken(child):
            return False
        self._tries[child.name] = tries + 1
        self._say(f"{child.name}: a port was taken meanwhile; starting it on others")

        async def again() -> None:
            await self.children.start(make())

        self._keep(again(), f"start {child.name} again")
        return True

    @property
    def api(self) -> CoordinatorApi:
        """The coordinators, those that live first."""
        found = [p for p in self._processes.values() if p.spec.kind == "coordinator"]
        found.sort(key=lambda process: not self.children.get(process.spec.name).alive)
        addresses = [process.addresses["http"] for process in found]
        return CoordinatorApi(self._http, addresses, timeout_seconds=1.0, token=lambda: self._token)

    @property
    def token(self) -> str:
        """The fleet's bearer token."""
        return self._token

    # ------------------------------------------------------------------ ready

    async def wait_ready(self) -> None:
        """Return when every group has an owner that acknowledged and the gateway shows it.

        Raises:
            FleetError: it takes too long; says what is missing.
        """
        began = told = time.monotonic()
        while (waiting_for := await self._waiting_for()) is not None:
            now = time.monotonic()
            if now - began > READY_SECONDS:
                raise FleetError(f"not ready after {READY_SECONDS:.0f} s: {waiting_for}")
            if now - told >= QUIET_SECONDS:
                told = now
                why = (
                    f"; why is perhaps in {self.folder.logs}" if now - began > LONG_SECONDS else ""
                )
                self._say(f"waiting for {waiting_for} ({now - began:.0f} s{why})")
            await asyncio.sleep(POLL_SECONDS)
        self._ready = True

    async def _waiting_for(self) -> str | None:
        try:
            shard_map = await self.api.shard_map()
        except Unreachable:
            return "the first shard map"
        pools, _ = self._snapshot()
        groups = group_pools(pools)
        owners = owners_of(shard_map)
        missing = without_owner(groups, owners)
        if missing:
            return f"owners of {_few([str(group) for group in missing])}"
        if self._admin is None or self._follower is None:
            return None
        workers = {n: p.addresses for n, p in self._processes.items() if p.spec.kind == "worker"}
        addresses = {name: given["ext_proc"] for name, given in workers.items()}
        try:
            hosts = await self._admin.clusters()
            unseen = not_in_gateway(owners, addresses, picker_clusters(groups), hosts)
            if unseen:
                return f"the gateway to see {_few([str(group) for group in unseen])}"
            return None if await self._follower.routed() else "the gateway's routes"
        except AdminUnavailable:
            return "the gateway"

    def state(self) -> FleetState:
        """What the state file says."""
        named = [(p, self.children.get(name).pid) for name, p in self._processes.items()]
        return FleetState(
            fleet=self._plan.settings.fleet,
            redis=self._store.url,
            gateway=self.gateway,
            token_file=str(self.folder.token),
            folder=str(self.folder.root),
            coordinators=tuple(
                processes.coordinator_state(process, pid)
                for process, pid in named
                if process.spec.kind == "coordinator"
            ),
            workers=tuple(
                processes.worker_state(process, pid)
                for process, pid in named
                if process.spec.kind == "worker"
            ),
            manifests=str(self._manifests),
        )

    async def restart_store_empty(self) -> None:
        """See `LocalStore.restart_empty`."""
        await self._store.restart_empty(self.children)

    # ------------------------------------------------------------------ the end

    async def close(self) -> None:
        """Stop everything and remove the run folder; at most 10 s."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.children.close(processes.STOP_ORDER)
        if self._world is not None:
            await self._world.close()
        await asyncio.to_thread(self.folder.remove)


def _few(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


@asynccontextmanager
async def running_fleet(
    plan: Plan, environ: Mapping[str, str], say: Say
) -> AsyncIterator[LocalFleet]:
    """Start a fleet, hand it out, and leave nothing of it behind."""
    with Ports(random.SystemRandom()) as ports:
        async with aiohttp.ClientSession() as http:
            fleet = LocalFleet(plan, environ, say, http, ports)
            try:
                await fleet.start()
                yield fleet
            finally:
                await fleet.close()

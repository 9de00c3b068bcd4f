"""The world of one run: servers, hosts, processes, gateways; what starts and stops."""

import random
from collections.abc import Callable
from dataclasses import replace

from coordinator.app import Elect
from coordinator.election.kube_lease import KubeLeaseElection
from fleet.model import GroupKey, Pod, Pool, PoolRef
from fleet.settings.model import Settings
from fleet.sources.contract import Object
from tests.memory_source import MemorySource
from tests.sim.coordinator import CoordinatorLife
from tests.sim.faults import Plan
from tests.sim.gateway import Gateway, Judges
from tests.sim.lease import LeaseServer, SimKube
from tests.sim.loop import Process, ProcessClock, World
from tests.sim.network import Host, Network, Weather
from tests.sim.routes import RouteServer, SimRoutes
from tests.sim.store import SimStore, StoreServer
from tests.sim.worker import WorkerLife

NAMESPACE = "ns"
FAST = Weather(base=0.001, spike=0.03, spikes=0.01)
SLOW = Weather(base=0.004, spike=0.25, spikes=0.03)


def settings_of(plan: Plan) -> Settings:
    """Defaults; only what lasts half a minute or more is shortened, so that a run sees its end."""
    base = Settings()
    return replace(
        base,
        redis=replace(base.redis, min_acks=1),
        coordinator=replace(base.coordinator, move_deadline_seconds=5.0),
        worker=replace(base.worker, quiet_seconds=2.5, stream_drain_seconds=8.0),
    )


def pool_of(index: int, life: int = 0) -> Pool:
    group = GroupKey(NAMESPACE, f"pool-{index}-epp", 9002)
    name = f"pool-{index}"
    return Pool(PoolRef(NAMESPACE, name), f"{name}-{life}", {"app": name}, (8000,), group)


def pods_of(index: int) -> list[Pod]:
    """Two of each pool; the third number of their addresses is the pool's."""
    name = f"pool-{index}"
    return [
        Pod(
            NAMESPACE,
            f"{name}-{n}",
            f"uid-{name}-{n}",
            {"app": name},
            f"10.9.{index}.{n + 1}",
            True,
        )
        for n in range(2)
    ]


def index_of(group: GroupKey) -> int:
    return int(group.service.split("-")[1])


class Fleet:
    """Everything there is in one run.

    Attributes:
        pools: that there are now, by group, with the moment at which they came.
        left: workers that were told to leave for good.
    """

    def __init__(self, plan: Plan, judges: Judges) -> None:
        self.plan = plan
        self.world = world = World()
        self.settings = settings_of(plan)
        self.rng = random.Random(f"fleet {plan.seed}")
        self.network = Network(
            world, random.Random(f"net {plan.seed}"), SLOW if plan.slow_network else FAST
        )
        self.store = StoreServer(world)
        self.routes = RouteServer(world)
        self.api = LeaseServer(world, self.network)
        self.coordinators: dict[str, CoordinatorLife] = {}
        self.workers: dict[str, WorkerLife] = {}
        self.left: set[str] = set()
        self.pools: dict[GroupKey, float] = {}
        self.gone_pools: dict[GroupKey, float] = {}
        self.on_worker: list[Callable[[WorkerLife], None]] = []
        self._objects: dict[int, tuple[Pool, list[Pod]]] = {}
        self._sources: list[tuple[Process, MemorySource]] = []
        self._heard: dict[Process, float] = {}
        self._skews: dict[str, float] = {}
        self._hosts: dict[str, Host] = {}
        self.gateways = [
            Gateway(
                world,
                f"gateway-{n}",
                self.network,
                random.Random(f"gateway {n} {plan.seed}"),
                judges,
                self.workers.get,
                sticky=n == 1,
                gap_seconds=1.2,
                propagation_seconds=0.5,
                response_seconds=0.8,
            )
            for n in range(2)
        ]
        for gateway in self.gateways:
            self.routes.on_change.append(gateway.route_changed)
        for index in range(plan.groups):
            self.add_pool(index)
        for n in range(plan.workers):
            self.start_worker(f"worker-{n}")
        for n in range(plan.coordinators):
            self.start_coordinator(f"coordinator-{n}")

    # -- pools ----------------------------------------------------------------------------------

    def add_pool(self, index: int) -> None:
        pool, pods = pool_of(index), pods_of(index)
        assert pool.group is not None
        self._objects[index] = (pool, pods)
        self.pools[pool.group] = self.world.now
        self.gone_pools.pop(pool.group, None)
        self._tell(lambda source: source.put(pool, *pods))

    def remove_pool(self, index: int) -> None:
        pool, pods = self._objects.pop(index)
        assert pool.group is not None
        del self.pools[pool.group]
        self.gone_pools[pool.group] = self.world.now
        for gateway in self.gateways:
            gateway.forget(pool.group)
        self._tell(lambda source: source.remove(pool, *pods))

    def _tell(self, change: Callable[[MemorySource], None]) -> None:
        """Each process hears of it in its own time, and of one change after the other."""
        for process, source in self._sources:
            if process.alive:
                heard = self.world.now + 0.005 + 0.2 * self.rng.random()
                heard = max(heard, self._heard.get(process, 0.0) + 0.000_001)
                self._heard[process] = heard
                self.world.at(heard, process, change, source)

    def _source(self, process: Process) -> MemorySource:
        objects: list[Object] = []
        for pool, pods in self._objects.values():
            objects += [pool, *pods]
        source = MemorySource(*objects)
        self._sources = [(p, s) for p, s in self._sources if p.alive]
        self._sources.append((process, source))
        return source

    # -- processes ------------------------------------------------------------------------------

    def _host(self, name: str, *, elsewhere: bool = False) -> Host:
        host = self._hosts.get(name)
        if host is None or elsewhere:
            host = self._hosts[name] = Host(name, f"10.0.0.{len(self.network.hosts) + 1}")
            self.network.add(host)
        return host

    def _process(self, name: str) -> tuple[Host, Process, SimStore, random.Random]:
        host = self._host(name)
        number = self.world.number()
        process = Process(self.world, name, offset=float(self.rng.randrange(1000, 100_000)))
        process.skew = self._skews.get(name, 0.0)
        host.process, host.gone, host.listening = process, False, False
        rng = random.Random(f"{name} {number} {self.plan.seed}")
        store = SimStore(
            process,
            name,
            self.store,
            self.network,
            timeout_seconds=self.settings.redis.request_timeout_seconds,
            min_acks=self.settings.redis.min_acks,
        )
        return host, process, store, rng

    def start_worker(self, name: str, *, elsewhere: bool = False) -> None:
        """Unless it runs already; `elsewhere` = the same name at another address."""
        known = self.workers.get(name)
        if known is not None and known.process.alive:
            return
        self._host(name, elsewhere=elsewhere)
        host, process, store, rng = self._process(name)
        life = WorkerLife(
            self.world,
            host,
            self.settings,
            self.network,
            store,
            self._source(process),
            rng,
            process,
        )
        self.workers[name] = life
        life.on_up.extend(self.on_worker)
        life.start()

    def start_coordinator(self, name: str) -> None:
        """Unless it runs already."""
        known = self.coordinators.get(name)
        if known is not None and known.process.alive:
            return
        host, process, store, rng = self._process(name)
        routes = SimRoutes(
            process,
            name,
            self.routes,
            self.network,
            ProcessClock(process),
            files=self.plan.files,
        )
        life = CoordinatorLife(
            self.world,
            host,
            self.settings,
            self.network,
            store,
            routes,
            self._source(process),
            rng,
            process,
            self._elect(process, name) if self.plan.lease else None,
        )
        self.coordinators[name] = life
        life.start()

    def _elect(self, process: Process, name: str) -> Elect:
        """By a Kubernetes Lease."""
        api, settings = SimKube(process, name, self.api), self.settings
        clock = ProcessClock(process)
        return lambda me: KubeLeaseElection(api, me, settings.election, settings.fleet, clock)

    def step_clock(self, name: str, seconds: float) -> None:
        """Wall clocks only; others never do."""
        self._skews[name] = self._skews.get(name, 0.0) + seconds
        for life in (self.workers.get(name), self.coordinators.get(name)):
            if life is not None:
                life.process.skew = self._skews[name]

    # -- views ----------------------------------------------------------------------------------

    def leaders(self) -> list[CoordinatorLife]:
        """By their own clocks; a paused one may think so and does nothing."""
        return [life for life in self.coordinators.values() if life.leading()]

    def leader(self) -> CoordinatorLife | None:
        """Who leads and runs, else whoever runs."""
        running = [life for life in self.coordinators.values() if life.process.running]
        leading = [life for life in running if life.leading()]
        return next(iter(leading or running), None)

    def living_workers(self) -> list[WorkerLife]:
        return [life for life in self.workers.values() if life.process.alive and life.up]

    def cut_off(self, worker: str) -> bool:
        """Whether a coordinator, the store or a gateway cannot reach `worker`, or it them. A worker
        that cannot be reached by another one alone is well: that one is cut off."""
        return self.network.cut_from(worker, but=self.workers)

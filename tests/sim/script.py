"""Carries a script of faults out on a fleet, and mends everything when it is over."""

import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from coordinator.routes.contract import Route
from fleet.errors import FleetError
from fleet.model import EpochVersion
from tests.sim.coordinator import CoordinatorLife
from tests.sim.faults import Fault
from tests.sim.fleet import Fleet, index_of
from tests.sim.network import ROUTES, STORE
from tests.sim.worker import WorkerLife

Life = CoordinatorLife | WorkerLife
Note = Callable[[str, str, float], None]
"""Told of each fault as it begins: whom it concerns, on what, for how long."""


async def _command(command: Coroutine[Any, Any, None]) -> None:
    """As over HTTP: a refusal is an answer."""
    with contextlib.suppress(FleetError):
        await command


class Script:
    """One run's faults."""

    def __init__(self, fleet: Fleet, note: Note) -> None:
        self._fleet = fleet
        self._note = note
        self._open: dict[int, Callable[[], None]] = {}
        self.done: list[str] = []
        for fault in fleet.plan.faults:
            fleet.world.at(fault.at, fleet.world.outside, self._begin, fault)
        fleet.world.at(fleet.plan.horizon, fleet.world.outside, self.mend)

    def mend(self) -> None:
        """All faults are over: what is broken is whole, who is dead comes back."""
        for undo in list(self._open.values()):
            undo()
        fleet = self._fleet
        for name in list(fleet.coordinators):
            fleet.start_coordinator(name)
        for name in list(fleet.workers):
            if name not in fleet.left:
                fleet.start_worker(name)

    # -- one fault ------------------------------------------------------------------------------

    def _begin(self, fault: Fault) -> None:
        verb, _, target = fault.kind.partition(" ")
        act = getattr(self, "_" + fault.kind.replace(" ", "_"), None)
        if act is None:
            act = getattr(self, f"_{verb}_", None)
            assert act is not None, fault.kind
            life = self._life(target, fault.which)
            undo = None if life is None else act(life, fault)
            on = "" if life is None else life.host.name
        else:
            undo = act(fault)
            on = ""
        self.done.append(fault.kind)
        self._note(fault.concerns, f"{fault.kind} {on}".strip(), fault.seconds)
        if undo is not None:
            number = self._fleet.world.number()

            def once(undo: Callable[[], None] = undo) -> None:
                if self._open.pop(number, None) is not None:
                    undo()

            self._open[number] = once
            self._fleet.world.later(max(fault.seconds, 0.01), once)

    def _life(self, target: str, which: int) -> Life | None:
        fleet = self._fleet
        if target == "leader":
            return fleet.leader()
        pool: list[Life] = list(
            fleet.living_workers() if target == "worker" else fleet.coordinators.values()
        )
        alive = [life for life in pool if life.process.running]
        return alive[which % len(alive)] if alive else None

    # -- processes ------------------------------------------------------------------------------

    def _restart(self, life: Life) -> None:
        if life.host.name in self._fleet.coordinators:
            self._fleet.start_coordinator(life.host.name)
        elif life.host.name not in self._fleet.left:
            self._fleet.start_worker(life.host.name)

    def _crash_(self, life: Life, fault: Fault) -> Callable[[], None]:
        life.die()
        return partial(self._restart, life)

    def _worker_moves(self, fault: Fault) -> Callable[[], None] | None:
        """It crashes, and comes back under its name at another address."""
        life = self._life("worker", fault.which)
        if life is None or life.host.name in self._fleet.left:
            return None
        life.die()
        return partial(self._fleet.start_worker, life.host.name, elsewhere=True)

    def _vanish_(self, life: Life, fault: Fault) -> Callable[[], None]:
        life.die(vanished=True)
        return partial(self._restart, life)

    def _pause_(self, life: Life, fault: Fault) -> Callable[[], None]:
        life.process.pause()
        return life.process.resume

    def _stop_(self, life: Life, fault: Fault) -> Callable[[], None]:
        life.leave()
        return partial(self._restart, life)

    # -- cuts -----------------------------------------------------------------------------------

    def _cut(self, name: str, others: list[str], which: int) -> Callable[[], None]:
        """Both ways twice of four times, else one."""
        pairs = []
        for other in others:
            if which % 4 != 0:
                pairs.append((name, other))
            if which % 4 != 1:
                pairs.append((other, name))
        network = self._fleet.network
        for pair in pairs:
            network.cut(*pair)

        def heal() -> None:
            for pair in pairs:
                network.heal(*pair)

        return heal

    def _cut_leader_from(
        self, fault: Fault, others: Callable[[str], list[str]]
    ) -> Callable[[], None] | None:
        leader = self._fleet.leader()
        if leader is None:
            return None
        return self._cut(leader.host.name, others(leader.host.name), fault.which)

    def _cut_leader_from_store(self, fault: Fault) -> Callable[[], None] | None:
        return self._cut_leader_from(fault, lambda _: [STORE])

    def _cut_leader_from_routes(self, fault: Fault) -> Callable[[], None] | None:
        return self._cut_leader_from(fault, lambda _: [ROUTES])

    def _cut_leader_from_worker(self, fault: Fault) -> Callable[[], None] | None:
        workers = sorted(self._fleet.workers)
        one = workers[fault.which // 4 % len(workers)]
        return self._cut_leader_from(fault, lambda _: [one])

    def _cut_leader_from_workers(self, fault: Fault) -> Callable[[], None] | None:
        return self._cut_leader_from(fault, lambda _: sorted(self._fleet.workers))

    def _cut_coordinators(self, fault: Fault) -> Callable[[], None] | None:
        names = sorted(self._fleet.coordinators)
        return self._cut_leader_from(fault, lambda me: [n for n in names if n != me])

    def _cut_worker_from_store(self, fault: Fault) -> Callable[[], None] | None:
        life = self._life("worker", fault.which // 4)
        return None if life is None else self._cut(life.host.name, [STORE], fault.which)

    def _cut_worker_off(self, fault: Fault) -> Callable[[], None] | None:
        """From everybody, gateways too."""
        life = self._life("worker", fault.which // 4)
        if life is None:
            return None
        fleet = self._fleet
        names = [*fleet.coordinators, *fleet.workers, STORE, *(g.name for g in fleet.gateways)]
        return self._cut(life.host.name, [n for n in names if n != life.host.name], fault.which)

    # -- store ----------------------------------------------------------------------------------

    def _store_down(self, fault: Fault) -> Callable[[], None]:
        store = self._fleet.store
        store.down = True
        return partial(setattr, store, "down", False)

    def _store_hangs(self, fault: Fault) -> Callable[[], None]:
        self._fleet.store.hung = True
        return self._fleet.store.go_on

    def _store_restarts_empty(self, fault: Fault) -> Callable[[], None]:
        self._fleet.store.empty()
        return self._store_down(fault)

    def _store_emptied(self, fault: Fault) -> None:
        self._fleet.store.empty()

    def _store_fails_over(self, fault: Fault) -> Callable[[], None]:
        self._fleet.store.lose_replica()
        return self._fleet.store.promote_replica

    # -- routes ---------------------------------------------------------------------------------

    def _routes_slow(self, fault: Fault) -> Callable[[], None]:
        """The API server that answers slowly, or the disk."""
        routes, api = self._fleet.routes, self._fleet.api
        routes.slow = api.slow = 0.05 + (fault.which % 10) / 8

        def over() -> None:
            routes.slow = api.slow = 0.0

        return over

    def _stale_route(self, fault: Fault) -> None:
        """What a leader of an earlier epoch meant to write, and wrote now."""
        fleet = self._fleet
        groups = sorted(fleet.routes.standing)
        workers = fleet.living_workers()
        if not groups or not workers:
            return
        standing = fleet.routes.standing[groups[fault.which % len(groups)]].route
        epoch = max(0, standing.version.epoch - 1 - fault.which % 2)
        address = workers[fault.which // 7 % len(workers)].worker.addresses.ext_proc
        version = EpochVersion(epoch, standing.version.version)
        fleet.routes.put(Route(standing.group, (address,), version), "an earlier leader")

    # -- planned --------------------------------------------------------------------------------

    def _wall_clock_steps(self, fault: Fault) -> None:
        names = sorted([*self._fleet.coordinators, *self._fleet.workers])
        step = (-3600.0, -7.0, 7.0, 3600.0)[fault.which % 4]
        self._fleet.step_clock(names[fault.which // 4 % len(names)], step)

    def _worker_joins(self, fault: Fault) -> None:
        self._fleet.start_worker(f"worker-{len(self._fleet.workers)}")

    def _worker_leaves(self, fault: Fault) -> None:
        fleet = self._fleet
        staying = [life for life in fleet.living_workers() if life.host.name not in fleet.left]
        if len(staying) > 2:
            life = staying[fault.which % len(staying)]
            fleet.left.add(life.host.name)
            life.leave()

    def _worker_drains(self, fault: Fault) -> Callable[[], None] | None:
        """By the leader's command; undone by the worker's own, whoever leads by then."""
        life, leader = self._life("worker", fault.which), self._fleet.leader()
        if not isinstance(life, WorkerLife) or leader is None or leader.app is None:
            return None
        leader.process.call(
            leader.process.loop.create_task, _command(leader.app.set_drain(life.host.name, True))
        )
        return partial(life.process.call, life.worker.set_drain, False)

    def _pool_comes(self, fault: Fault) -> None:
        taken = {index_of(group) for group in self._fleet.pools}
        self._fleet.add_pool(next(n for n in range(200) if n not in taken))

    def _pool_goes(self, fault: Fault) -> None:
        groups = sorted(self._fleet.pools)
        if len(groups) > 1:
            self._fleet.remove_pool(index_of(groups[fault.which % len(groups)]))

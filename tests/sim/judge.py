"""The invariants, looked at while a run goes on. The first one that breaks ends the run.

I1  A lower epoch never changes what a worker serves. A stale route lands only if its writer was
    held up after its last look, and is repaired within a second.
I2  epoch.version only grows: as published, and at each worker. One version is one map, one epoch
    has one leader, and nobody may act as leader beside another. What a worker holds by a version
    is its whole share of that version, by whatever parts it was told.
I3  With a live worker every group has a live owner, within the failure budget.
I4  A planned move loses no request.
I5  A worker answers a stream only with endpoints of that stream's pool.
I6  No group moves, and nobody is declared dead, without a reason that is true.
I7  No owner is dead; nothing is given to a worker that drains.
I8  Losing the store and the coordinators changes nothing for groups that are placed.
"""

from dataclasses import dataclass

from epp_worker.stopping import stop_limits
from tests.sim.faults import COORDINATION, WORKER
from tests.sim.fleet import Fleet, index_of
from tests.sim.gateway import Request
from tests.sim.maps import MapRules
from tests.sim.routing import RouteRules
from tests.sim.shares import ShareRules
from tests.sim.tape import Tape, Violation
from tests.sim.worker import WorkerLife

LOOK_SECONDS = 0.1
RECOVERED_SECONDS = 8.0
"""After a fault that concerns workers no request need fail any more."""


@dataclass(slots=True)
class Counts:
    """What a run was made of."""

    answered: int = 0
    excused: int = 0
    elections: int = 0
    moves: int = 0
    fail_overs: int = 0
    stale_routes: int = 0


class Judge:
    """Hears of everything that matters; `violation` is the first thing that must not be."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.counts = Counts()
        self.fleet: Fleet
        self.maps: MapRules
        self.routing: RouteRules
        self.shares = ShareRules(tape)
        self._known: dict[WorkerLife, tuple[object, ...]] = {}

    @property
    def violation(self) -> Violation | None:
        return self.tape.violation

    def watch(self, fleet: Fleet) -> None:
        """Before the run."""
        self.fleet = fleet
        self.tape.world = fleet.world
        self.maps = MapRules(fleet, self.tape, self.counts)
        self.routing = RouteRules(fleet, self.tape, self.counts)
        fleet.store.on_published.append(self.maps.published)
        fleet.store.on_lag.append(self.maps.lagging)
        fleet.store.on_rolled_back.append(self.maps.rolled_back)
        fleet.store.on_emptied.append(self.maps.emptied)
        fleet.routes.on_change.append(self.routing.changed)
        fleet.on_worker.append(self._worker_up)
        for life in fleet.workers.values():
            life.on_up.append(self._worker_up)
        fleet.world.later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        fleet = self.fleet
        fleet.world.later(LOOK_SECONDS, self._look)
        leaders = [life.host.name for life in fleet.leaders()]
        if len(leaders) > 1:
            self.tape.break_("I2", f"{' and '.join(leaders)} may both act as leader")
        self.maps.look()
        self.routing.look()
        for at, name, what in fleet.world.complaints:
            self.tape.break_("I0", f"at {at:.3f} in {name}: {what}")

    # -- workers --------------------------------------------------------------------------------

    def _worker_up(self, life: WorkerLife) -> None:
        life.worker.holdings.on_change(lambda: self._holds_changed(life))
        self._holds_changed(life)

    def _holds_changed(self, life: WorkerLife) -> None:
        """I1 and I2, at one worker."""
        holdings = life.worker.holdings
        now = (holdings.applied, holdings.seen, holdings.incarnation)
        applied, seen, incarnation = self._known.get(life, now)
        self._known[life] = now
        name = life.host.name
        if holdings.incarnation == incarnation and holdings.applied != applied:
            if holdings.applied < applied:  # type: ignore[operator]
                self.tape.break_("I2", f"{name} went from {applied} to {holdings.applied}")
            if holdings.applied.epoch < seen[0]:  # type: ignore[index]
                self.tape.break_("I1", f"{name} saw {seen} and applied {holdings.applied}")
        if holdings.seen < seen:  # type: ignore[operator]
            self.tape.break_("I2", f"{name} has seen {seen}, and now only {holdings.seen}")

    # -- requests -------------------------------------------------------------------------------

    def answered(self, request: Request, endpoint: str) -> None:
        """See `Judges.answered`."""
        self.counts.answered += 1
        pool = endpoint.split(".")[2]
        if pool != str(index_of(request.group)):
            self.tape.break_("I5", f"a stream of {request.group} was answered with {endpoint}")

    def failed(self, request: Request, why: str) -> None:
        """See `Judges.failed`."""
        if self._excused(request, why):
            self.counts.excused += 1
            return
        disturbed = self.tape.since(COORDINATION, request.started) < RECOVERED_SECONDS
        worker = "nobody" if request.life is None else request.life.host.name
        self.tape.break_(
            "I8" if disturbed else "I4",
            f"a stream of {request.group} to {worker}, begun at {request.started:.3f}: {why}",
        )

    def _left_late(self, life: WorkerLife) -> bool:
        """It was told to stop and nobody could take over for as long as a hand-over may take: that
        is shorter here than a connection that is cut lasts."""
        waited = life.closed - life.told
        late = waited >= stop_limits(life.settings).hand_over
        return late and self.tape.since(COORDINATION, life.closed) < waited

    def _excused(self, request: Request, why: str) -> bool:
        """Whether a fault of a worker, or the pool itself, explains it."""
        fleet, group = self.fleet, request.group
        if request.life is not None and self._left_late(request.life):
            return True
        if group not in fleet.pools or fleet.world.now - fleet.pools[group] < RECOVERED_SECONDS:
            return True
        if self.tape.since(WORKER, request.started) < RECOVERED_SECONDS:
            return True
        if self.tape.since(WORKER, fleet.world.now) < RECOVERED_SECONDS:
            return True
        return self.routing.wrong_lately(group, request.started - RECOVERED_SECONDS)

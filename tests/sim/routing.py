"""What must be true of routes, and of whom they lead to."""

import math
from typing import TYPE_CHECKING

from coordinator.routes.contract import Route
from fleet.model import GroupKey, Phase
from tests.sim.faults import COORDINATION, WORKER
from tests.sim.fleet import Fleet
from tests.sim.loop import State
from tests.sim.network import KEEPALIVE_SECONDS
from tests.sim.tape import Tape
from tests.sim.worker import WorkerLife

if TYPE_CHECKING:
    from tests.sim.judge import Counts

CRASH_SECONDS = 1.5
"""From a worker's crash until its groups have routes to others: 0.3 s typical, 1 s, and a look."""

SILENT_SECONDS = 4.5
"""... from its falling silent: 2.5 s, a repair, and what has to be opened."""

SUSPICIOUS_SECONDS = 9.0
"""... if more than half are silent: the leader suspects itself for two TTLs first."""

ELECTION_SECONDS = 7.0
"""... when the leader has to be replaced too (5.5 s), or the store told what it had forgotten."""

REPAIR_SECONDS = 1.6
"""A stale route stands at most a second, and the look that finds it takes its time."""


class RouteRules:
    """Follows every route and whom it leads to."""

    def __init__(self, fleet: Fleet, tape: Tape, counts: "Counts") -> None:
        self._fleet = fleet
        self._tape = tape
        self._counts = counts
        self._highest: dict[GroupKey, int] = {}
        self._stale: dict[GroupKey, float] = {}
        self._down: dict[str, tuple[float, WorkerLife]] = {}
        self._bad: dict[GroupKey, float] = {}
        self._wrong: dict[GroupKey, float] = {}
        self._vanished: dict[str, float] = {}

    # -- I1 -------------------------------------------------------------------------------------

    def changed(
        self, group: GroupKey, before: Route | None, after: Route | None, writer: str
    ) -> None:
        """A route was written or removed."""
        if after is None:
            self._stale.pop(group, None)
            return
        self._tape.note(f"route {group} -> {','.join(after.addresses)} {after.version} {writer}")
        highest = self._highest.get(group, 0)
        self._highest[group] = max(highest, after.version.epoch)
        if after.version.epoch >= highest:
            self._stale.pop(group, None)
            return
        self._stale.setdefault(group, self._fleet.world.now)
        self._counts.stale_routes += 1

    # -- I3 -------------------------------------------------------------------------------------

    def wrong_lately(self, group: GroupKey, since: float) -> bool:
        """Whether its route has led astray since then, by a fault of a worker or an old writer."""
        return self._wrong.get(group, -1.0) >= since

    def look(self) -> None:
        now = self._fleet.world.now
        healthy = [life for life in self._fleet.living_workers() if self._healthy(life)]
        quiet = self._tape.since(COORDINATION, now)
        for name, life in self._fleet.workers.items():
            if life.host.gone:
                self._vanished[name] = now
        for what in self._fleet.routes.unfenced:
            self._tape.break_("I1", what)
        for group, since in list(self._stale.items()):
            self._wrong[group] = now
            budget = REPAIR_SECONDS if quiet > ELECTION_SECONDS else ELECTION_SECONDS
            if now - max(since, now - quiet) > budget and healthy:
                self._tape.break_("I1", f"a stale route of {group} stands since {since:.3f}")
        for group, came in self._fleet.pools.items():
            why = self._why_bad(group)
            confined = why is not None and self._confined(group)
            if confined:
                self._wrong[group] = now
            if why is None or not healthy or confined:
                self._bad.pop(group, None)
                continue
            if self._tape.since(WORKER, now) < 2 * SUSPICIOUS_SECONDS:
                self._wrong[group] = now
            since = self._bad.setdefault(group, now)
            begin = max(since, now - quiet, came)
            budget = self._budget(group, quiet)
            if budget == CRASH_SECONDS:  # it was cut off before it crashed: from then on
                begin = max(begin, self._down_since(group, now))
            if now - begin > budget:
                self._tape.break_("I3", f"{group} has no live owner since {since:.3f}: {why}")

    def _down_since(self, group: GroupKey, now: float) -> float:
        """When it was first seen that nobody listens where the route leads."""
        owner = self._owner(group)
        if owner is None:
            return -math.inf
        seen, life = self._down.get(owner.host.name, (now, owner))
        self._down[owner.host.name] = (seen if life is owner else now, owner)
        return self._down[owner.host.name][0]

    def _confined(self, group: GroupKey) -> bool:
        """A group that is thought to kill its workers is kept from them for a while."""
        for life in self._fleet.leaders():
            shard_map = None if life.app is None else life.app.shard_map()
            placement = None if shard_map is None else shard_map.placements.get(group)
            if placement is not None and placement.phase is Phase.QUARANTINED:
                return True
        return False

    def _budget(self, group: GroupKey, quiet: float) -> float:
        fleet = self._fleet
        if quiet < ELECTION_SECONDS:
            return SUSPICIOUS_SECONDS
        lives = [life for name, life in fleet.workers.items() if name not in fleet.left]
        silent = [life for life in lives if self._silent(life)]
        if 2 * len(silent) > len(lives):
            return SUSPICIOUS_SECONDS
        owner = self._owner(group)
        crashed = owner is not None and self._refuses(owner)
        return CRASH_SECONDS if crashed and not silent else SILENT_SECONDS

    def _silent(self, life: WorkerLife) -> bool:
        """To the leader: one that vanished and is back is so until its old connection ends."""
        vanished = self._vanished.get(life.host.name, -KEEPALIVE_SECONDS)
        back = self._fleet.world.now - vanished < KEEPALIVE_SECONDS
        return back or not (self._healthy(life) or self._refuses(life))

    def _refuses(self, life: WorkerLife) -> bool:
        return not life.process.alive and not life.host.gone

    def _owner(self, group: GroupKey) -> WorkerLife | None:
        standing = self._fleet.routes.standing.get(group)
        if standing is None or not standing.route.addresses:
            return None
        host = self._fleet.network.host_of(standing.route.addresses[0])
        return None if host is None else self._fleet.workers.get(host.name)

    def _healthy(self, life: WorkerLife) -> bool:
        running = life.process.state is State.RUNNING
        return running and life.up and not self._fleet.cut_off(life.host.name)

    def _why_bad(self, group: GroupKey) -> str | None:
        """Why a stream that follows the route would not be served; None if it would."""
        standing = self._fleet.routes.standing.get(group)
        if standing is None:
            return "no route"
        if not standing.route.addresses:
            return "an empty route"
        life = self._owner(group)
        if life is None:
            return f"a route to nobody: {standing.route.addresses}"
        name = life.host.name
        if not life.process.alive or not life.up:
            return f"a route to {name}, which is down"
        if not self._healthy(life):
            return f"a route to {name}, which is paused or cut off"
        held = life.worker.holdings.get(group)
        if held is None:
            return f"a route to {name}, which does not hold it"
        return None if held.serving else f"a route to {name}, which does not serve it yet"

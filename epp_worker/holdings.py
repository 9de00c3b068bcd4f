"""All groups that this worker holds, and the steps that change them.

Decisions are made in `epp_worker.holds`; here they are carried out: pods watched, pool states
built, endpoints scraped. Nothing is awaited: what takes time (a first list, a first scrape) ends
in a change that listeners are told of.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import Protocol

from epp_worker.catalogue import Catalogue, Spawn
from epp_worker.datalayer.counts import ScrapeCounts
from epp_worker.group import Group
from epp_worker.holds import (
    SCRAPING,
    Drop,
    Held,
    Open,
    Ruling,
    Standing,
    Step,
    Turn,
    diff,
    judge,
    release_all,
)
from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.budget import DEFAULT_BYTES, Budget
from epp_worker.scheduling.slots import PoolSlots
from epp_worker.scheduling.state_merge import trust
from fleet.control.messages import HoldReport
from fleet.errors import AuthorityError
from fleet.model import EpochVersion, GroupKey, Hold, Pool, Share, ShareEntry
from fleet.model.identity import NONE

log = logging.getLogger(__name__)


class Scrapes(Protocol):
    """What the holds need of the data layer."""

    def add(self, pool: PoolState) -> None:
        """Keep the metrics of this pool's endpoints fresh."""
        ...

    def remove(self, pool: PoolState) -> None:
        """Stop that."""
        ...

    def refresh(self, pool: PoolState) -> None:
        """The pool's endpoints have changed."""
        ...

    async def first(self, pool: PoolState) -> None:
        """Scrape each endpoint once, or try to."""
        ...

    async def run(self) -> None:
        """Scrape until cancelled."""
        ...

    def counts(self) -> ScrapeCounts:
        """What was scraped so far, for the metrics."""
        ...


class Holdings:
    """The groups, by key. `changed` is called after every change that others may care for."""

    def __init__(
        self,
        catalogue: Catalogue,
        scraper: Scrapes,
        spawn: Spawn,
        *,
        fleet: str,
        worker: str,
        incarnation: str,
        quiet_seconds: float,
        now: Callable[[], float],
        rng: Random,
        schedulers: Schedulers | None = None,
        prefix_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self._catalogue = catalogue
        self._scraper = scraper
        self._spawn = spawn
        self._fleet = fleet
        self._worker = worker
        self._quiet_seconds = quiet_seconds
        self._now = now
        self._rng = rng
        self.slots = PoolSlots(Budget(prefix_bytes))
        self.schedulers = schedulers or Schedulers()
        self._groups: dict[GroupKey, Group] = {}
        self._changed: list[Callable[[], None]] = []
        self._regrouped: list[Callable[[GroupKey], None]] = []
        self._gone: Callable[[GroupKey, str], None] = lambda _group, _owner: None
        self._quiet: frozenset[GroupKey] = frozenset()
        self._named: frozenset[GroupKey] = frozenset()
        self.incarnation = incarnation
        self.applied = NONE
        self.seen = NONE
        self.told = False
        """Whether a leader, the store or a peer has ever said what this worker is to hold."""
        self.hearsay = False
        """What it holds is what peers remember of it: nobody else has said anything so far."""
        self.last_owned = float("-inf")
        """Loop time at which this worker last owned a group."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop after every change of holds, pools or phases."""
        self._changed.append(listener)

    def on_gone(self, listener: Callable[[GroupKey, str], None]) -> None:
        """Call `listener` with each group that goes from here, and who was said to own it."""
        self._gone = listener

    def on_group(self, listener: Callable[[GroupKey], None]) -> None:
        """Call `listener` whenever a group was opened, turned or dropped, or has other pools."""
        self._regrouped.append(listener)

    def get(self, key: GroupKey) -> Group | None:
        """The group, if it is held in any way."""
        return self._groups.get(key)

    def opens(self, authority: str) -> bool:
        """Whether the group that an authority names is held here and cannot be served yet: the
        pods of its pools are still being listed. A group without pools waits for nothing."""
        try:
            key = self._catalogue.authorities.resolve(authority)
        except AuthorityError:
            return False
        if key is None or key not in self._groups:
            return False
        return bool(self._catalogue.pools_of(key)) and not self._catalogue.listed(key.namespace)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def holds(self) -> Mapping[GroupKey, Hold]:
        """What is held, as a member says it."""
        return {key: group.hold for key, group in self._groups.items()}

    def counts(self) -> dict[Hold, int]:
        """How many groups are held in each way."""
        counts = dict.fromkeys(Hold, 0)
        for group in self._groups.values():
            counts[group.hold] += 1
        return counts

    def see(self, version: EpochVersion) -> None:
        """Remember the highest epoch.version seen anywhere."""
        self.seen = max(self.seen, version)

    def apply(self, share: Share, *, hearsay: bool = False) -> Ruling:
        """Hold what `share` says, if it may be applied at all.

        Args:
            hearsay: it is put together from what peers remember: it counts only as long as
                nobody else has said anything.
        """
        standing = Standing(
            self._fleet,
            self._worker,
            self.incarnation,
            self.applied,
            self.seen.epoch,
            hearsay=self.hearsay,
        )
        ruling = judge(standing, share)
        if hearsay and self.told and not self.hearsay:
            ruling = Ruling.NOT_NEWER
        if ruling is not Ruling.APPLY:
            return ruling
        self.see(share.version)
        self.applied = share.version
        self.told = True
        self.hearsay = hearsay
        self._named = frozenset(entry.group for entry in share.entries)
        steps = diff(self._held(), share)
        if steps:
            log.info("share applied", extra={"map": str(share.version), "steps": len(steps)})
        self._carry_out(steps)
        return ruling

    def named(self) -> tuple[ShareEntry, ...]:
        """The groups of the last share, as they are held now."""
        return tuple(
            ShareEntry(group.key, group.hold, group.pools, group.owner)
            for key, group in self._groups.items()
            if key in self._named
        )

    def rejoin(self, incarnation: str) -> None:
        """This incarnation was declared dead: own nothing, answer strays, be somebody new."""
        self.incarnation = incarnation
        self._named = frozenset()
        self._carry_out(release_all(self._held()))

    def _held(self) -> dict[GroupKey, Held]:
        now = self._now()
        return {
            key: Held(group.hold, group.pools, group.owner, self._droppable(group, now))
            for key, group in self._groups.items()
        }

    def _droppable(self, group: Group, now: float) -> bool:
        return group.hold is not Hold.OWNER and group.quiet(now, self._quiet_seconds)

    def _carry_out(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case Open(entry):
                    self._open(entry)
                case Turn(entry):
                    self._turn(entry)
                case Drop(key):
                    self._drop(key)
        self._tell()

    def _open(self, entry: ShareEntry) -> None:
        group = self._groups[entry.group] = Group(entry)
        if entry.hold is Hold.DRAINING:
            group.draining_since = self._now()
        self._catalogue.hold(entry.group.namespace)
        self._refresh(group)
        self._tell_of(entry.group)

    def _turn(self, entry: ShareEntry) -> None:
        group = self._groups[entry.group]
        before = group.hold
        if before is Hold.OWNER:
            self.last_owned = self._now()
        self._note_owner(group)
        group.turn(entry, self._now())
        if before in SCRAPING and group.hold not in SCRAPING:
            for state in group.states.values():
                self._scraper.remove(state)
            group.scraped = False
        elif before not in SCRAPING and group.hold in SCRAPING:
            for state in group.states.values():
                trust(state, self._now())
                self._scraper.add(state)
            self._scrape_first(group)
        self._tell_of(group.key)

    def _drop(self, key: GroupKey) -> None:
        group = self._groups.pop(key)
        group.serving = False
        self._note_owner(group)
        if group.hold in SCRAPING:
            for state in group.states.values():
                self._scraper.remove(state)
        self._catalogue.release(key.namespace)
        self._tell_of(key)

    def _note_owner(self, group: Group) -> None:
        """It is about to go, or to be said to have no owner: remember the last one."""
        if group.owner is not None and group.owner != self._worker:
            self._gone(group.key, group.owner)

    def pools_changed(self, keys: Iterable[GroupKey]) -> None:
        """The source has new pools or endpoints for these groups."""
        touched = [group for key in keys if (group := self._groups.get(key)) is not None]
        for group in touched:
            if self._refresh(group):
                self._tell_of(group.key)
        self._tell()

    def state_came(self, keys: Iterable[GroupKey]) -> None:
        """The owner's state of these groups is here, or will not come."""
        waiting = [group for key in keys if (group := self._groups.get(key)) is not None]
        for group in waiting:
            group.awaits_state = False
        if waiting:
            self._tell()

    def models_came(self, group: Group, *, whole: bool) -> None:
        """What the pools of this held group serve is known, or known anew; `whole`: of all."""
        group.awaits_models = group.awaits_models and not whole
        group.picker.set_pools(group.picker.pools())
        self._tell()

    def _refresh(self, group: Group) -> bool:
        """Make the group's states follow the source; a pool with another uid starts anew.

        Returns whether it has other pools than before, or changed ones.
        """
        scraping = group.hold in SCRAPING
        pools = self._catalogue.pools_of(group.key)
        alive = {pool.ref: pool for pool in pools}
        rebuilt = False
        for ref, state in list(group.states.items()):
            pool = alive.get(ref)
            if pool is None or pool.uid != state.pool.uid:
                del group.states[ref]
                rebuilt = True
                if scraping:
                    self._scraper.remove(state)
        for pool in pools:
            rebuilt |= self._refresh_pool(group, pool, scraping=scraping)
        if rebuilt:
            group.picker.set_pools([group.states[pool.ref] for pool in pools])
        serving = bool(pools) and self._catalogue.listed(group.key.namespace)
        opened = serving and not group.serving
        group.serving = serving
        if opened and scraping:
            self._scrape_first(group)
        return rebuilt

    def _refresh_pool(self, group: Group, pool: Pool, *, scraping: bool) -> bool:
        """Update or create one pool's state; whether the picker must look at it anew."""
        endpoints = self._catalogue.endpoints(pool)
        state = group.states.get(pool.ref)
        if state is None:
            state = PoolState(
                pool,
                now=self._now,
                rng=self._rng,
                new_slot=self.slots,
                schedulers=self.schedulers.scheduler,
            )
            group.states[pool.ref] = state
            state.intents = self._catalogue.intents(pool)
            state.set_endpoints(endpoints)
            if scraping:
                self._scraper.add(state)
            return True
        changed = state.pool != pool
        if changed:
            state.update(pool)
        state.intents = self._catalogue.intents(pool)
        if tuple(known.endpoint for known in state.endpoints()) != endpoints:
            state.set_endpoints(endpoints)
            if scraping:
                self._scraper.refresh(state)
        return changed

    def _scrape_first(self, group: Group) -> None:
        if group.serving and not group.scraped:
            self._spawn(self._first(group), f"first scrape of {group.key}")

    async def _first(self, group: Group) -> None:
        async with asyncio.TaskGroup() as tasks:
            for state in tuple(group.states.values()):
                tasks.create_task(self._scraper.first(state))
        if self._groups.get(group.key) is group and group.hold in SCRAPING:
            group.scraped = True
            self._tell()

    def reports(self) -> tuple[HoldReport, ...]:
        """Every hold as the leader is told of it."""
        now = self._now()
        return tuple(group.report(now, self._quiet_seconds) for group in self._groups.values())

    def tick(self, seconds: float) -> None:
        """A heartbeat: smooth the rates, drop what nobody wants any more, tell of new quiet."""
        now = self._now()
        for group in self._groups.values():
            group.tick(seconds)
            if group.hold is Hold.OWNER:
                self.last_owned = now
        quiet = frozenset(
            key
            for key, group in self._groups.items()
            if group.hold is Hold.DRAINING and group.quiet(now, self._quiet_seconds)
        )
        unwanted = quiet - self._named
        news = quiet - self._quiet
        self._quiet = quiet - unwanted
        if unwanted:
            self._carry_out(tuple(Drop(key) for key in unwanted))
        elif news:
            self._tell()

    def _tell_of(self, key: GroupKey) -> None:
        for listener in self._regrouped:
            listener(key)

    def _tell(self) -> None:
        for listener in self._changed:
            listener()

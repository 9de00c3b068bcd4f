"""Learns which models the pools of a shared Service serve, where no annotation says it.

Each ready endpoint of such a pool is asked when it appears and every half minute after that; the
pool's models are those of all its endpoints that ever answered and still exist. An endpoint that
does not answer keeps what it said. A group that opens is not reported as ready before each of its
endpoints was asked once, or had some seconds for it, so that a planned move changes no answer.

Nobody waits for others' servers: each pool has its own few questions under way, and its own bound
of names.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass

from epp_worker.datalayer.models import MAX_NAMES, ModelSource, NotTold
from epp_worker.group import Group
from epp_worker.holdings import Holdings
from epp_worker.scheduling.group import lists_models
from epp_worker.scheduling.pool import PoolState
from fleet.clock import Clock
from fleet.model import GroupKey, PoolRef

log = logging.getLogger(__name__)

ASK_SECONDS = 30.0
AGAIN_SECONDS = 5.0
"""After a question that was not answered."""
LOOK_SECONDS = 1.0
"""How soon a new endpoint is noticed."""
OPENING_SECONDS = 10.0
"""So long a group that opens waits for endpoints; it has what those said that answered."""

AT_ONCE = 32
AT_ONCE_OF_A_POOL = 4
"""The endpoints of one pool, each of which may take its 2 s, do not keep others' waiting."""


@dataclass(slots=True, eq=False)
class _Asked:
    """One endpoint: what it said, and when it is asked again. `asking`: it is being asked."""

    due: float
    models: frozenset[str] = frozenset()
    told: bool = True
    asking: bool = False


class _Followed:
    """One pool of a group that shares.

    Attributes:
        places: how many of its endpoints may be asked at once.
        asking: endpoints that are being asked, or wait for that.
        models: what its endpoints say, as of the last look.
        full: names were left out.
        news: something is other than at the last look.
    """

    __slots__ = ("_once", "_sets", "_since", "asked", "asking", "full", "models", "news", "places")

    def __init__(self, now: float) -> None:
        self._since = now
        self._once = False
        self.asked: dict[str, _Asked] = {}
        self.places = asyncio.Semaphore(AT_ONCE_OF_A_POOL)
        self.asking = 0
        self.models: dict[str, str] = {}
        self._sets: dict[frozenset[str], frozenset[str]] = {}
        self.full = False
        self.news = True

    def known(self, now: float) -> bool:
        """Whether all endpoints were asked once, or had time for it."""
        self._once |= not self.asking or now - self._since >= OPENING_SECONDS
        return self._once

    def present(self, addresses: Iterable[str], now: float) -> None:
        """These endpoints exist; new ones are due."""
        known = self.asked
        self.asked = {each: known.get(each) or _Asked(due=now) for each in addresses}
        self.news |= self.asked.keys() != known.keys()

    def said(self, asked: _Asked, models: frozenset[str]) -> None:
        """Keep an endpoint's answer: as another one's where both say the same, and without names
        that are more than a pool may have."""
        if models == asked.models:
            return
        kept = self._sets.get(models)
        if kept is None:
            for name in models - self.models.keys():
                if len(self.models) >= MAX_NAMES:
                    self.full = True
                    break
                self.models[name] = name
            kept = frozenset(self.models[name] for name in models if name in self.models)
            kept = self._sets.setdefault(kept, kept)
        self.news |= kept != asked.models
        asked.models = kept

    def taken(self) -> frozenset[str]:
        """All that the endpoints say; what nobody says any more is forgotten."""
        self.news = self.full = False
        self._sets = {each.models: each.models for each in self.asked.values()}
        models = frozenset[str]().union(*self._sets)
        self.models = {name: name for name in models}
        return models


class ModelLearner:
    """See the module."""

    def __init__(self, holdings: Holdings, source: ModelSource, clock: Clock) -> None:
        self._holdings = holdings
        self._source = source
        self._clock = clock
        self._followed: dict[GroupKey, dict[PoolRef, _Followed]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._news = asyncio.Event()
        holdings.on_group(self._on_group)

    def _on_group(self, key: GroupKey) -> None:
        """A group came, went, or has other pools."""
        group = self._holdings.get(key)
        if group is None or not any(unlisted(group)):
            self._followed.pop(key, None)
            if group is not None:
                group.awaits_models = False
        elif key not in self._followed:
            self._followed[key] = {}
            group.awaits_models = True
            self._news.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                for key in tuple(self._followed):
                    self._look(key, tasks)
                await self._rest()

    async def _rest(self) -> None:
        """Until something may be due; with nothing to follow, until there is."""
        if not self._followed:
            await self._news.wait()
            return
        await self._clock.sleep(LOOK_SECONDS)

    def _look(self, key: GroupKey, tasks: asyncio.TaskGroup) -> None:
        """Take what a group's endpoints have said, and ask those that are due."""
        group = self._holdings.get(key)
        if group is None or not group.serving:
            return
        now = self._clock.monotonic()
        states = unlisted(group)
        before = self._followed[key]
        followed = {
            state.pool.ref: before.get(state.pool.ref) or _Followed(now) for state in states
        }
        self._followed[key] = followed
        for state in states:
            pool = followed[state.pool.ref]
            pool.present((each.address for each in state.endpoints()), now)
            for address, asked in pool.asked.items():
                if asked.due <= now and not asked.asking:
                    asked.asking = True
                    pool.asking += 1
                    tasks.create_task(self._ask(key, pool, address, asked))
        self._take(key)

    async def _ask(self, key: GroupKey, pool: _Followed, address: str, asked: _Asked) -> None:
        async with pool.places, self._places:
            if pool.asked.get(address) is asked:  # else it has gone while it waited for its turn
                await self._learn(pool, address, asked)
        asked.asking = False
        pool.asking -= 1
        if not pool.asking and key in self._followed:
            self._take(key)

    async def _learn(self, pool: _Followed, address: str, asked: _Asked) -> None:
        try:
            pool.said(asked, await self._source.ask(address))
        except NotTold as error:
            asked.due = self._clock.monotonic() + AGAIN_SECONDS
            if asked.told:
                log.warning("models not told", extra={"endpoint": address, "problem": str(error)})
            asked.told = False
            return
        asked.due = self._clock.monotonic() + ASK_SECONDS
        asked.told = True

    def _take(self, key: GroupKey) -> None:
        """Have count what was said of pools that are known."""
        group, followed = self._holdings.get(key), self._followed[key]
        if group is None:
            return
        now = self._clock.monotonic()
        changed, all_known = False, True
        for state in unlisted(group):
            pool = followed.get(state.pool.ref)
            if pool is None or not pool.known(now):
                all_known = False
            elif pool.news or state.models is None:
                changed |= _learned(state, pool)
        if changed or (group.awaits_models and all_known):
            self._holdings.models_came(group, whole=all_known)


def _learned(state: PoolState, pool: _Followed) -> bool:
    """Whether a pool's models are other than before."""
    ref, full = str(state.pool.ref), pool.full
    models = pool.taken()
    if full:
        extra: dict[str, object] = {"pool": ref, "models": MAX_NAMES}
        log.warning("models left out", extra=extra)
    if models == state.models:
        return False
    state.models = models
    log.info("models learned", extra={"pool": ref, "models": len(models)})
    return True


def unlisted(group: Group) -> list[PoolState]:
    """The pools of a shared group whose models nobody has listed."""
    states = group.picker.pools()
    if len(states) < 2:
        return []
    return [state for state in states if not lists_models(state.pool)]

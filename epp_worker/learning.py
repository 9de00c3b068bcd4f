"""Learns which models the pools of a shared Service serve, where no annotation says it.

Each ready endpoint of such a pool is asked when it appears and every half minute after that; the
pool's models are those of all its endpoints that ever answered and still exist. An endpoint that
does not answer keeps what it said. A group that opens is not reported as ready before each of its
endpoints was asked once, so that a planned move changes no answer.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from epp_worker.datalayer.models import ModelSource, NotTold
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
AT_ONCE = 8


@dataclass(slots=True)
class _Asked:
    """One endpoint: what it said, and when it is asked again."""

    due: float
    models: frozenset[str] = frozenset()
    told: bool = True


@dataclass(slots=True)
class _Followed:
    """One group that shares."""

    pools: dict[PoolRef, dict[str, _Asked]] = field(default_factory=dict)


class ModelLearner:
    """See the module."""

    def __init__(self, holdings: Holdings, source: ModelSource, clock: Clock) -> None:
        self._holdings = holdings
        self._source = source
        self._clock = clock
        self._followed: dict[GroupKey, _Followed] = {}
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
            self._followed[key] = _Followed()
            group.awaits_models = True
            self._news.set()

    async def run(self) -> None:
        """Ask until cancelled; the source is closed then."""
        try:
            while True:
                self._news.clear()
                for key in tuple(self._followed):
                    await self._look(key)
                await self._rest()
        finally:
            await self._source.close()

    async def _rest(self) -> None:
        """Until something may be due; with nothing to follow, until there is."""
        if not self._followed:
            await self._news.wait()
            return
        await self._clock.sleep(LOOK_SECONDS)

    async def _look(self, key: GroupKey) -> None:
        """Ask all endpoints of a group that are due, and take what they say."""
        group, followed = self._holdings.get(key), self._followed.get(key)
        if group is None or followed is None or not group.serving:
            return
        now = self._clock.monotonic()
        states = unlisted(group)
        followed.pools = {
            state.pool.ref: _present(state, followed.pools.get(state.pool.ref, {}), now)
            for state in states
        }
        async with asyncio.TaskGroup() as tasks:
            for endpoints in followed.pools.values():
                for address, asked in endpoints.items():
                    if asked.due <= now:
                        tasks.create_task(self._ask(address, asked))
        if self._followed.get(key) is followed and self._holdings.get(key) is group:
            self._take(group, followed, states)

    async def _ask(self, address: str, asked: _Asked) -> None:
        async with self._places:
            try:
                asked.models = await self._source.ask(address)
            except NotTold as error:
                asked.due = self._clock.monotonic() + AGAIN_SECONDS
                if asked.told:
                    log.warning(
                        "models not told", extra={"endpoint": address, "problem": str(error)}
                    )
                asked.told = False
                return
        asked.due = self._clock.monotonic() + ASK_SECONDS
        asked.told = True

    def _take(self, group: Group, followed: _Followed, states: list[PoolState]) -> None:
        changed = group.awaits_models
        for state in states:
            models = frozenset[str]().union(
                *(asked.models for asked in followed.pools[state.pool.ref].values())
            )
            if models != state.models:
                state.models = models
                changed = True
                log.info(
                    "models learned", extra={"pool": str(state.pool.ref), "models": len(models)}
                )
        if changed:
            self._holdings.models_came(group)


def unlisted(group: Group) -> list[PoolState]:
    """The pools of a shared group whose models nobody has listed."""
    states = group.picker.pools()
    if len(states) < 2:
        return []
    return [state for state in states if not lists_models(state.pool)]


def _present(state: PoolState, known: Mapping[str, _Asked], now: float) -> dict[str, _Asked]:
    """What is known of the endpoints that exist; new ones are due."""
    return {each.address: known.get(each.address) or _Asked(due=now) for each in state.endpoints()}

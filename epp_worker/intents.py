"""The objectives and rewrites of every pool, straight from the source.

Most clusters have neither kind, or get it later: then there is nothing here until it comes. A
worker waits for their first lists when it starts, since a request must not reach a model server
under a name that it does not know; but not for ever, since pools are served without them too.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from fleet.model import Objective, Pool, PoolReference, Rewrite
from fleet.model.rewrites import MAX_NAMES, Intents, intents_of
from fleet.sources.contract import Change, Kind, Source, Watch

log = logging.getLogger(__name__)

FIRST_LISTS_SECONDS = 5.0

_Fact = TypeVar("_Fact", Objective, Rewrite)


class IntentIndex:
    """See the module. `changed` is called on the loop with each pool that others speak of."""

    def __init__(self, source: Source, changed: Callable[[PoolReference], None]) -> None:
        self._source = source
        self._changed = changed
        self._objectives: dict[PoolReference, dict[str, Objective]] = {}
        self._rewrites: dict[PoolReference, dict[str, Rewrite]] = {}
        self._known: dict[PoolReference, Intents] = {}
        self._watches: tuple[Watch, ...] = ()
        self._told: set[PoolReference] = set()

    async def start(self) -> None:
        """Watch; returns when the first lists are here, or do not come in time."""
        self._watches = (
            self._source.watch(Kind.OBJECTIVE, self._on_objective),
            self._source.watch(Kind.REWRITE, self._on_rewrite),
        )
        try:
            async with asyncio.timeout(FIRST_LISTS_SECONDS):
                for watch in self._watches:
                    await watch.wait_synced()
        except TimeoutError:
            log.warning("objectives and rewrites are not listed yet; pools are served without")

    def of(self, pool: Pool) -> Intents:
        """What is said of requests to `pool` as of now."""
        reference = pool.reference
        known = self._known.get(reference)
        if known is None:
            known = self._known[reference] = intents_of(
                self._objectives.get(reference, {}).values(),
                self._rewrites.get(reference, {}).values(),
                reference,
            )
            self._tell(reference, known)
        return known

    def _tell(self, pool: PoolReference, intents: Intents) -> None:
        """Once, until all count again: every change asks."""
        if not intents.left_out:
            self._told.discard(pool)
        elif pool not in self._told:
            self._told.add(pool)
            log.warning(
                "rewrites left out: those of the pool name too many models",
                extra={
                    "pool": f"{pool.namespace}/{pool.name}",
                    "rewrites": intents.left_out,
                    "most": MAX_NAMES,
                },
            )

    def forget(self, pool: Pool) -> None:
        """The pool is gone."""
        self._known.pop(pool.reference, None)
        self._told.discard(pool.reference)

    def close(self) -> None:
        """End the watches."""
        for watch in self._watches:
            watch.close()

    def _on_objective(self, change: Change) -> None:
        old, new = change.old, change.new
        self._moved(
            self._objectives,
            old if isinstance(old, Objective) else None,
            new if isinstance(new, Objective) else None,
        )

    def _on_rewrite(self, change: Change) -> None:
        old, new = change.old, change.new
        self._moved(
            self._rewrites,
            old if isinstance(old, Rewrite) else None,
            new if isinstance(new, Rewrite) else None,
        )

    def _moved(
        self,
        facts: dict[PoolReference, dict[str, _Fact]],
        old: _Fact | None,
        new: _Fact | None,
    ) -> None:
        """One fact came, changed, or went; it may be of another pool than before."""
        if old is not None:
            left = facts.get(old.pool, {})
            left.pop(old.ref.name, None)
            if not left:
                facts.pop(old.pool, None)
        if new is not None:
            facts.setdefault(new.pool, {})[new.ref.name] = new
        for pool in {each.pool for each in (old, new) if each is not None}:
            self._known.pop(pool, None)
            self._changed(pool)

"""A leadership while it lasts: what the leader's work looks at before every act."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from coordinator.election.contract import Standing, Term
from fleet.clock import Clock
from fleet.model import EpochVersion
from fleet.model.identity import NONE

FRESH_SHARE = 2 / 3
"""Of the lease, to be left before work that holds up the loop. Renewals in time leave more."""

LONG_GROUPS = 1_000
"""From so many groups on, placing and planning them may take a noticeable part of a lease: for
10,000 the first time 0.25 s of a core, ten times as long where a tenth of a core is free."""

PATIENCE_SECONDS = 0.25
"""For a renewal that is asked for: as long as a leader waits for news anyway."""


class Leadership:
    """A live view of one leadership; the term in it is replaced on each renewal.

    The epoch may grow while it lasts (the holder acquired again above a higher one that was seen):
    read it anew for every act. Not `valid` means "do not act now", not "end": cancellation ends.
    """

    def __init__(
        self,
        clock: Clock,
        term: Term,
        *,
        ttl_seconds: float = 0.0,
        renew: Callable[[], None] = lambda: None,
    ) -> None:
        """Args:
        ttl_seconds: what a renewal gives.
        renew: has the lease renewed at once.
        """
        self._ttl_seconds = ttl_seconds
        self._renew = renew
        self._news = asyncio.Event()
        self._clock = clock
        self._term = term
        self._published = NONE
        self._held_back = False
        self._ended = False
        self._home_knows_maps = False

    @property
    def term(self) -> Term:
        """The present term."""
        return self._term

    @property
    def epoch(self) -> int:
        """The present epoch."""
        return self._term.epoch

    @property
    def published(self) -> EpochVersion:
        """The highest version that this leadership has published."""
        return self._published

    def valid(self) -> bool:
        """Whether the leader may act now."""
        acting = not (self._ended or self._held_back)
        return acting and self._term.valid(self._clock.monotonic())

    def remaining(self) -> float:
        """Seconds until the deadline; zero or less when it has passed."""
        return self._term.deadline - self._clock.monotonic()

    async def refresh(self, groups: int) -> None:
        """Before work over so many groups, which holds up the loop: where they are many, have the
        lease renewed if more than a third of it is used. Returns when it is, or after
        `PATIENCE_SECONDS`.

        Without it, work after work that each held up the loop could use the lease up between a
        renewal and its answer.
        """
        if groups < LONG_GROUPS or self.remaining() >= FRESH_SHARE * self._ttl_seconds:
            return
        self._news.clear()
        self._renew()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._news.wait()

    def note_published(self, version: EpochVersion) -> None:
        """The store confirmed this publication; a lower one found later is a roll-back."""
        self._published = max(self._published, version)

    def renewed(self, term: Term) -> None:
        """Go on with `term`."""
        self._term = term
        self._news.set()

    def end(self) -> None:
        """Never valid again."""
        self._ended = True

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Not valid inside."""
        self._held_back = True
        try:
            yield
        finally:
            self._held_back = False

    def rolled_back(self, standing: Standing, published: EpochVersion) -> bool:
        """Whether the lease's home shows a map below `published` (what was so before it was asked).

        A home that never showed a map (a Kubernetes Lease) proves nothing by showing none.
        """
        stored = standing.map_version
        if stored is None:
            return self._home_knows_maps and published != NONE
        self._home_knows_maps = True
        return stored < published

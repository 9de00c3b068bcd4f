"""A leadership while it lasts: what the leader's work looks at before every act."""

import contextlib
from collections.abc import Iterator

from coordinator.election.contract import Standing, Term
from fleet.clock import Clock
from fleet.model import EpochVersion
from fleet.model.identity import NONE


class Leadership:
    """A live view of one leadership; the term in it is replaced on each renewal.

    The epoch may grow while it lasts (the holder acquired again above a higher one that was seen):
    read it anew for every act. Not `valid` means "do not act now", not "end": cancellation ends.
    """

    def __init__(self, clock: Clock, term: Term) -> None:
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

    def note_published(self, version: EpochVersion) -> None:
        """The store confirmed this publication; a lower one found later is a roll-back."""
        self._published = max(self._published, version)

    def renewed(self, term: Term) -> None:
        """Go on with `term`."""
        self._term = term

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

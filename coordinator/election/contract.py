"""Who leads: one contract; the lease lives in Redis (`coordinator.election.redis`).

A term ends at `deadline` by the holder's own monotonic clock, measured from before the request was
sent: what the lease's own clock does is no matter. Every act of a leader first looks at `valid`.
"""

from dataclasses import dataclass
from typing import Protocol

from fleet.model import EpochVersion, LeaderInfo


@dataclass(frozen=True, slots=True)
class Term:
    """One leadership: from acquire until lost or released.

    Attributes:
        deadline: monotonic seconds after which the holder must not act any more.
    """

    leader: LeaderInfo
    epoch: int
    deadline: float

    def valid(self, now: float) -> bool:
        """Whether the holder may still act at monotonic time `now`."""
        return now < self.deadline


@dataclass(frozen=True, slots=True)
class Standing:
    """The lease as seen from outside.

    Attributes:
        epoch: last epoch given, 0 if none.
        map_version: version of the stored map as the lease's home knows it, or None.
    """

    leader: LeaderInfo | None
    epoch: int
    map_version: EpochVersion | None = None


class Election(Protocol):
    """Raises StoreUnavailable wherever the answer is unknown."""

    async def acquire(self, *, floor: int) -> Term | None:
        """Take the lead with an epoch above `floor`; None if somebody else holds it."""
        ...

    async def renew(self, term: Term) -> tuple[Term | None, Standing]:
        """Extend; a None term = lost for certain (someone else's, emptied, or a higher epoch)."""
        ...

    async def release(self, term: Term) -> None:
        """Give up; the caller has stopped acting before."""
        ...

    async def observe(self) -> Standing:
        """Look without taking part."""
        ...

"""Who leads: one contract; the lease lives in Redis (`coordinator.election.redis`) or is a
Kubernetes Lease (`coordinator.election.kube_lease`).

A term ends at `deadline` by the holder's own monotonic clock, measured from before the request was
sent: what the lease's own clock does is no matter. Every act of a leader first looks at `valid`.
"""

from dataclasses import dataclass
from typing import Protocol

from fleet.model import EpochVersion, LeaderInfo


@dataclass(frozen=True, slots=True)
class Timers:
    """How long a lease lasts without a renewal, and how often it is renewed and looked at."""

    ttl_seconds: float
    renew_seconds: float


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
        expires_in: seconds after which the observer itself finds the lease free unless it changes;
            None where the lease's home says so.
    """

    leader: LeaderInfo | None
    epoch: int
    map_version: EpochVersion | None = None
    expires_in: float | None = None


class Election(Protocol):
    """Raises StoreUnavailable wherever the answer is unknown, StoreRefused for a no."""

    @property
    def timers(self) -> Timers:
        """The lease's timers."""
        ...

    @property
    def in_store(self) -> bool:
        """Whether the lease lives in the store, which then compares holder and epoch by itself."""
        ...

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

    async def changed(self) -> None:
        """Return once the lease has another holder or epoch than at the last `observe`, as far as
        `watch` was told of it; never, where the lease's home tells nothing by itself."""
        ...

    async def watch(self) -> None:
        """Listen to the lease's home until cancelled, so that `changed` knows."""
        ...

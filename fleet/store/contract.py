"""What a store promises; `fleet.store.redis` and `fleet.store.memory` pass one suite.

Rules that every implementation keeps:

1. `acquire`, `renew`, `release` and every write of the leader are atomic and compare holder AND
   epoch inside the write (the epoch alone where the lease is `elsewhere`). A caller that was paused
   finds its write refused, not landed.
2. A time-out may have landed: each of them gives the same answer when it is repeated with the same
   arguments (`request` tells a repetition from a second attempt).
3. `StoreUnavailable` means "unknown", never "lost". Nothing is read in part: a read gives the whole
   value or raises.
4. Ages are measured by the store's own clock, so the members' clocks never matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from fleet.model import EpochVersion, LeaderInfo, Member, RingSpec, ShardMap, Share

MAX_EPOCH: Final = 2**50
"""No epoch above this is ever given: scripts count in doubles, and none can be that high."""

MAX_MOVES: Final = 10_000
"""At most so many moves of one publication are kept, and at least about so many publications."""


class Guard(NamedTuple):
    """Who writes: compared inside every write of a leader.

    Attributes:
        elsewhere: the lease is not in this store (a Kubernetes Lease). Then the write itself is
            refused if a higher epoch is stored, or if somebody else holds the store's own lease;
            otherwise it stores its epoch, and from then on a lower one is refused.
    """

    holder: str
    epoch: int
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as the store has it.

    Attributes:
        leader: the present holder, or None if nobody holds it.
        epoch: the last epoch that was given (0: none ever, or the store was emptied).
        remaining_seconds: until it runs out; 0.0 without a holder.
        map_version: version of the stored map, or None if there is no map.
    """

    leader: LeaderInfo | None
    epoch: int
    remaining_seconds: float
    map_version: EpochVersion | None


@dataclass(frozen=True, slots=True)
class MemberBeat:
    """A member and how long ago the store heard of it, in seconds of the store's clock.

    Negative where that clock stepped back since: then it says nothing about the member.
    """

    member: Member
    age_seconds: float


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the audit stream: a group that changed hands, or failed to. `at` is wall time.

    Attributes:
        why: of the death that caused it: every signal that had fired, with its age; else "".
    """

    group: str
    source: str
    target: str
    reason: str
    version: EpochVersion
    started: float
    finished: float
    outcome: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Publication:
    """All that one generation of the map writes, in one atomic step.

    Attributes:
        shares: worker id -> its whole share; a known worker without groups has an empty share.
        removed_shares: worker ids whose share is deleted (dead workers).
        moves: appended to the audit stream, the newest 10,000 of them. The stream is bounded to
            about 10,000 entries; one holds up to 250 moves of a publication.
    """

    shard_map: ShardMap
    ring: RingSpec
    shares: Mapping[str, Share]
    removed_shares: Sequence[str] = ()
    moves: Sequence[Move] = ()


class Store(Protocol):
    """The fleet's shared memory. Safe for concurrent use by the tasks of one event loop."""

    async def acquire(
        self, leader: LeaderInfo, *, floor: int, ttl_seconds: float, request: str
    ) -> Lease:
        """Take the lease if nobody else holds it, with epoch = max(stored, floor) + 1.

        The present holder may acquire again and gets a new, higher epoch. The same `request` by
        the same holder gives the same epoch again. Returns the lease as it stands afterwards:
        the caller has it exactly if `leader.id` is its own and the epoch is above `floor`.

        Raises:
            StoreRefused: the epoch would pass 2**50.
            StoreUnavailable: unknown; also when fewer replicas than `min_acks` confirmed.
        """
        ...

    async def renew(self, guard: Guard, *, ttl_seconds: float) -> Lease:
        """Extend the lease if `guard` still holds it; otherwise change nothing.

        Returns the lease as it stands: the caller compares holder and epoch.

        Raises:
            StoreUnavailable: unknown; also when fewer replicas than `min_acks` confirmed.
        """
        ...

    async def release(self, guard: Guard) -> None:
        """Give the lease up if `guard` holds it; otherwise do nothing."""
        ...

    async def lease(self) -> Lease:
        """Look, without changing anything."""
        ...

    async def beat(self, member: Member) -> None:
        """Store what the member says of itself and the time, by the store's clock."""
        ...

    async def members(self) -> tuple[MemberBeat, ...]:
        """All known members, ordered by id.

        One whose value cannot be read (damaged, or of a version that is too new) is left out and
        said loudly, once: it must not hide all others. FormatError = nothing can be read.
        """
        ...

    async def forget(self, guard: Guard, worker: str, incarnation: str) -> None:
        """Delete a dead member if it still is that incarnation, guarded.

        Raises:
            StoreRefused: `guard` does not hold the lease; see `Guard` where that is elsewhere.
        """
        ...

    async def publish(self, guard: Guard, publication: Publication) -> None:
        """Write map, ring, shares and moves in one guarded step.

        Refused unless `guard` holds the lease (see `Guard` where that is elsewhere), the epoch of
        the map is the guard's, and the stored map's version is lower. Repeating the same
        publication is no error and adds no move twice; another map under a version that is already
        stored is refused.

        Raises:
            StoreRefused: see above.
            StoreUnavailable: unknown.
        """
        ...

    async def publish_shares(
        self,
        guard: Guard,
        version: EpochVersion,
        shares: Mapping[str, Share],
        removed: Sequence[str],
    ) -> None:
        """Write shares behind the map of `version`, which is stored, in one guarded step.

        A stored share stays if it is of a version that is not lower than that of the one to write
        or, of `removed` workers, than `version`: what lands late takes nothing back.

        Raises:
            StoreRefused: as for `publish`; also if a share is of another epoch than the guard's.
            StoreUnavailable: unknown.
        """
        ...

    async def shard_map(self, newer_than: EpochVersion) -> ShardMap | None:
        """The stored map if its version is higher than `newer_than`, else None (cheap)."""
        ...

    async def ring(self) -> tuple[RingSpec, EpochVersion] | None:
        """The stored ring with the version it was published with, or None."""
        ...

    async def share(self, worker: str) -> Share | None:
        """The stored share; None is no information (not: "you own nothing")."""
        ...

    async def moves(self, limit: int) -> tuple[Move, ...]:
        """The latest moves, newest first."""
        ...

    async def close(self) -> None:
        """Close the connections; further calls raise StoreUnavailable."""
        ...

"""What the web room may see of a coordinator, leader or follower: one read model, two commands."""

from collections.abc import Sequence
from typing import Protocol

from coordinator.explain import Explained
from coordinator.whatif import Premises
from fleet.control.endpoint_messages import PoolEndpoints
from fleet.errors import FleetError
from fleet.model import LeaderInfo, MemberStatus, PoolRef, ShardMap
from fleet.store.contract import Move


class UnknownWorker(FleetError):
    """No live worker has this id."""


class DrainConflict(FleetError):
    """The command makes no sense now (already draining, not draining, worker dead)."""


class NotLeading(FleetError):
    """Only the leader commands.

    Attributes:
        leader: where to go instead, or None if there is none at the moment.
    """

    def __init__(self, leader: LeaderInfo | None) -> None:
        super().__init__("this coordinator does not lead")
        self.leader = leader


class UnknownPool(FleetError):
    """The map has no such pool."""


class EndpointsUnknown(FleetError):
    """A pool's endpoints cannot be told now; the message says who was asked, what came of it."""


class View(Protocol):
    """A coordinator as its HTTP side sees it. Reads never block."""

    @property
    def id(self) -> str:
        """This coordinator."""
        ...

    def shard_map(self) -> ShardMap | None:
        """The latest map known here; None before the first."""
        ...

    def members(self) -> Sequence[MemberStatus]:
        """Workers ordered by id, dead ones for 60 s after their death included."""
        ...

    def leader(self) -> LeaderInfo | None:
        """Who leads, as far as known here."""
        ...

    def leading(self) -> bool:
        """Whether this coordinator holds a valid term."""
        ...

    def explain(self, ref: PoolRef) -> Explained | None:
        """All that is known here of one pool; None if nothing is."""
        ...

    def revision(self) -> int:
        """Grows whenever the map or a worker's status changes here."""
        ...

    async def after(self, revision: int) -> None:
        """Return once the revision is another one."""
        ...

    async def endpoints(self, ref: PoolRef) -> PoolEndpoints:
        """A pool's endpoints by its owner's word.

        Raises:
            UnknownPool, EndpointsUnknown: see there; the latter within about a second.
        """
        ...

    async def moves(self, limit: int) -> Sequence[Move]:
        """The latest moves that ended, newest first, from the store.

        Raises:
            StoreUnavailable, FormatError: they cannot be read.
        """
        ...

    def skipped(self, ref: PoolRef) -> Sequence[str]:
        """What the source skips of this pool, and why."""
        ...

    def premises(self) -> Premises | None:
        """What a question about another number of workers rests on; None before the first map."""
        ...

    def ready(self) -> str | None:
        """None if reads can be answered and all loops live; else the reason why not."""
        ...

    def alive(self) -> bool:
        """Whether the loop and every supervised task live."""
        ...

    async def set_drain(self, worker: str, on: bool) -> None:
        """Tell `worker` to set or lift its drain mark; returns when it was handed over.

        Raises:
            NotLeading, UnknownWorker, DrainConflict: see there.
        """
        ...

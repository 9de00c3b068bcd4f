"""Where gateways learn the owners from: one contract; Envoy EDS files are one implementation.

Routes are the real routing and lie outside the store, so they carry `epoch.version` themselves and
every write is fenced: compare the epoch that stands there, look at the term's deadline, write.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from coordinator.election.contract import Term
from fleet.model import EpochVersion, GroupKey


@dataclass(frozen=True, slots=True)
class Route:
    """What gateways should see of one group.

    Attributes:
        addresses: `host:port` of the live owners; empty = the gateway's failureMode decides.
        version: epoch.version of the map it follows from.
    """

    group: GroupKey
    addresses: tuple[str, ...]
    version: EpochVersion


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What became of a batch: groups written, already right, and refused by a higher epoch."""

    written: tuple[GroupKey, ...]
    unchanged: tuple[GroupKey, ...]
    refused: tuple[GroupKey, ...]
    highest_epoch: int


class Routes(Protocol):
    """Raises RouteError for what could not be read or written, after trying the rest."""

    async def read(self) -> Mapping[GroupKey, Route]:
        """All routes of this fleet as they stand; an unreadable one counts as absent."""
        ...

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        """Write each route unless a higher epoch stands there or `term` is over."""
        ...

    async def remove(self, groups: Sequence[GroupKey], term: Term) -> WriteResult:
        """Delete the routes of groups that exist no more, fenced alike."""
        ...


@runtime_checkable
class Unreadable(Protocol):
    """Routes that know what of theirs stands there but cannot be read: it may have to go."""

    def unreadable(self) -> Collection[GroupKey]:
        """Groups with something that is no route, as of the last `read`."""
        ...


@runtime_checkable
class Located(Protocol):
    """Routes that can be shown to people."""

    def where(self, group: GroupKey) -> str:
        """The file or object that holds the route of `group`, there or not."""
        ...

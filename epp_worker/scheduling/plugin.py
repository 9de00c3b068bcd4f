"""What a scheduling plugin is: one small Protocol per kind.

Plugins are made per pool (`PluginType.make`), so that whatever they remember is that pool's, and
made anew when the pool's configuration or the pool itself is another one. All calls happen on the
serving loop and must be quick: a plugin that raises loses its vote for this request, never the
request; one that is slow is counted. Third parties add plugin types by an entry point of the group
`epp_fleet.plugins` that names a `PluginType`. Their classes inherit from none of the fleet's own
plugins: those are compiled in the image, and Python classes cannot.

The order for one request: filters narrow the candidates, scorers rate what is left (0..1 each,
clamped, times their weight, summed), the picker orders; then observers see what was picked. One
instance may be of several kinds: what it has methods for, it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.state_slots import StateSlot
from fleet.model.identity import PoolRef
from fleet.picking.kinds import Role

if TYPE_CHECKING:
    from epp_worker.scheduling.endpoint import EndpointState

ENTRY_POINTS = "epp_fleet.plugins"
"""The group of entry points that third-party plugin types are found by."""

Candidates: TypeAlias = "Sequence[EndpointState]"

ParametersType: TypeAlias = type[Any]

Header: TypeAlias = Callable[[str], str | None]
"""Looks a header up by lower-case name."""


NO_VOTE: Sequence[float] = range(0)
"""What a scorer may answer for which all candidates are equal: quicker than as many zeros."""


@runtime_checkable
class Filter(Protocol):
    """Narrows the candidates; an empty answer refuses the request (429)."""

    def filter(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """Those that may stay, in any order; must not change `candidates`."""
        ...


@runtime_checkable
class Scorer(Protocol):
    """Rates candidates.

    A call that takes more than 1 ms does not count if several of the last calls did; a scorer whose
    work grows with the prompt may have an attribute `allowed_seconds`: a call within that counts.
    """

    def score(self, request: PickRequest, candidates: Candidates) -> Sequence[float]:
        """One value in 0..1 per candidate, in their order; what is outside is clamped. Or
        `NO_VOTE` itself."""
        ...


class AddingScorer(ABC):
    """A `Scorer` that can add its own part, within 0..1, to a sum: one pass instead of two."""

    @abstractmethod
    def add(
        self, request: PickRequest, candidates: Candidates, weight: float, totals: list[float]
    ) -> list[float] | None:
        """A new list: the totals and the weighted scores; None = no vote."""


@runtime_checkable
class EndpointPicker(Protocol):
    """Chooses among what was rated."""

    def order(self, candidates: Candidates, scores: Sequence[float]) -> Candidates:
        """The chosen endpoint first, then its fallbacks; at least one for a candidate."""
        ...


@runtime_checkable
class PickObserver(Protocol):
    """Learns what was picked, within the pick: the very next request sees it."""

    def picked(self, request: PickRequest, chosen: "EndpointState") -> None:
        """`chosen` will get the request."""
        ...


@runtime_checkable
class PrefillObserver(Protocol):
    """Learns where a prompt is computed, if not by who answers."""

    def prefilled(self, request: PickRequest, chosen: "EndpointState") -> None:
        """`chosen`, the first of the profile `prefill`, computes the prompt."""
        ...


@runtime_checkable
class ResponseObserver(Protocol):
    """Learns how a picked request went on."""

    def responded(
        self, request: PickRequest, served: "EndpointState", header: Header
    ) -> Mapping[str, str] | None:
        """Response headers came; `served` is who answers.

        Returns:
            Headers to set on the response; None = none.
        """
        ...

    def finished(self, request: PickRequest, served: "EndpointState") -> None:
        """The request is over, however it ended."""
        ...


@runtime_checkable
class ServedObserver(Protocol):
    """Learns whom the gateway says a response is from."""

    def served(self, told: str | None) -> Mapping[str, str]:
        """Response headers came; the headers to set on them.

        Args:
            told: `ip:port` by the gateway's word; None = it said nothing.
        """
        ...


_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_NO_OTHERS: "Mapping[str, Candidates]" = MappingProxyType({})


class Selection(msgspec.Struct, frozen=True):
    """What a profile handler decided.

    Attributes:
        endpoints: of the primary profile, the chosen one first.
        headers: set on the request beside the destination.
        removed: headers taken off the request, so that no client can set them.
        others: what further profiles chose, by profile name (the `prefill` one's endpoints).
        destination: what the gateway is told instead of the endpoints' own addresses; "" = these.
    """

    endpoints: Candidates
    headers: Mapping[str, str] = _NO_HEADERS
    removed: tuple[str, ...] = ()
    others: "Mapping[str, Candidates]" = _NO_OTHERS
    destination: str = ""


class Profile(Protocol):
    """A named list of filters, scorers and a picker, ready to run."""

    @property
    def name(self) -> str:
        """As in the configuration."""
        ...

    def run(self, request: PickRequest, candidates: Candidates) -> Candidates:
        """The chosen endpoints, best first; empty = the filters left none."""
        ...


@runtime_checkable
class ProfileHandler(Protocol):
    """Decides which profiles run for a request, and whose choice it is."""

    def select(
        self, request: PickRequest, candidates: Candidates, profiles: Mapping[str, Profile]
    ) -> Selection:
        """Run what is needed; no endpoints = the request is refused (429)."""
        ...


@runtime_checkable
class Decider(Protocol):
    """Decides whether a part of a request is done by an endpoint of another profile."""

    def disaggregate(self, request: PickRequest, chosen: "EndpointState") -> bool:
        """Whether it is, given who was chosen to answer."""
        ...


@runtime_checkable
class Detector(Protocol):
    """Says how full a pool is."""

    def saturation(self, candidates: Candidates) -> float:
        """0 = idle, 1 and more = full; an empty pool is full."""
        ...


@dataclass(frozen=True, slots=True)
class PluginContext:
    """What a plugin is made with.

    Attributes:
        name: of the instance in the configuration.
        pool: whose instance it is.
        now: monotonic seconds.
        random: uniform in [0, 1).
        find: another instance of the same pool by name; None = there is none.
        slot: the pool's state of that name which stand-bys are told of too; None = unknown name.
            Ask at each use: a pool that is made anew has new slots.
        oldest: metrics asked for before this moment are overdue, by the clock of `now`.
    """

    name: str
    pool: PoolRef
    now: Callable[[], float]
    random: Callable[[], float]
    find: Callable[[str], Any]
    slot: Callable[[str], StateSlot | None]
    oldest: Callable[[], float] = lambda: float("-inf")


@dataclass(frozen=True, slots=True)
class PluginType:
    """A kind of plugin as configurations name it.

    Attributes:
        type: the name.
        parameters: a msgspec Struct type (forbid_unknown_fields) that `parameters` decode into.
            Those of the fleet's own types stand in `fleet.picking`, where the CLI checks them too.
        make: builds an instance for one pool; raises ValueError for values that cannot work.
        roles: what it is in a configuration; the fleet's own types have them in `fleet.picking`.
        experimental: only taken where the fleet allows experimental plugins.
    """

    type: str
    parameters: ParametersType
    make: Callable[[Any, PluginContext], object]
    roles: frozenset[Role] = frozenset()
    experimental: bool = False

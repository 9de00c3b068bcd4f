"""What a decision about a pool rests on, and what it says."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fleet.model import GroupKey, Pool, Service


class ServiceKey(NamedTuple):
    """Namespace and name of a Service; equal to the source's key of it."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class SliceWriter(NamedTuple):
    """Who put an EndpointSlice into a Service.

    Attributes:
        manager: its label endpointslice.kubernetes.io/managed-by; "" without one.
        fleet: its label epp-fleet.dev/fleet; "" without one.
    """

    manager: str
    fleet: str


@dataclass(frozen=True, slots=True)
class World:
    """What surrounds a pool.

    Attributes:
        service: finds a Service; None = nobody looks (a folder of manifests): they are optional.
        foreign: by Service, who else than this fleet has slices in it. Services may be absent.
        naming: the pools whose route groups lead to a Service.
    """

    service: Callable[[ServiceKey], Service | None] | None
    foreign: Mapping[ServiceKey, frozenset[SliceWriter]]
    naming: Callable[[ServiceKey], Iterable[Pool]]


class Role(StrEnum):
    """Why a Service leads to a pool."""

    PICKER = "picker"
    """The pool's endpointPickerRef names it."""

    ALSO_SERVE = "also-serve"
    """The pool's annotation does."""


class ServiceState(StrEnum):
    """How a Service through which we serve stands to us."""

    OURS = "ours"
    """We created it, so we may add ports to it."""

    LABELLED = "labelled"
    """Its owner gave it our label; nothing in it is ever changed."""

    MISSING = "missing"
    """It does not exist: we create it."""

    HANDED_OVER = "handed_over"
    """Another fleet created it for a pool that is ours now: we take it over."""

    UNCHECKED = "unchecked"
    """Nobody looks at Services here."""


class RefusalReason(StrEnum):
    """Why a pool that we claim, or one of its two Services, is not served; the reason of events."""

    NO_PICKER = "NoEndpointPicker"
    PICKER_KIND = "UnsupportedEndpointPicker"
    ALSO_SERVE = "InvalidAlsoServe"
    PIN = "InvalidPin"
    RESPONSE_PHASE = "InvalidResponsePhase"
    EXTERNAL_NAME = "ServiceIsExternalName"
    SELECTOR = "ServiceHasSelector"
    FOREIGN_SLICES = "ServiceHasForeignSlices"
    OTHER_FLEET = "ServiceOfOtherFleet"
    NOT_LABELLED = "ServiceNotLabelled"
    NO_PORT = "ServiceLacksPort"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One thing that keeps a pool from being served.

    Attributes:
        message: what is so and what to do, for the pool's owner.
        group: the route group that is refused; None if it is about the pool itself.
    """

    reason: RefusalReason
    message: str
    group: GroupKey | None = None


@dataclass(frozen=True, slots=True)
class ServedBy:
    """One route group through which a pool is served.

    Attributes:
        note: what people should know about the Service; "" is nothing.
    """

    group: GroupKey
    role: Role
    state: ServiceState
    note: str = ""

    @property
    def service(self) -> ServiceKey:
        """The Service of the group."""
        return ServiceKey(self.group.namespace, self.group.service)


@dataclass(frozen=True, slots=True)
class Claimed:
    """Ours, and served through at least one group.

    Attributes:
        why: the rule that claims it.
        refusals: what is wrong with its other Service, if anything.
    """

    why: str
    served: tuple[ServedBy, ...]
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Ours by the rules, but served through nothing."""

    why: str
    refusals: tuple[Refusal, ...]
    served: tuple[ServedBy, ...] = ()


@dataclass(frozen=True, slots=True)
class NotOurs:
    """Another controller's, or not covered by the claim: not looked at any further."""

    why: str
    served: tuple[ServedBy, ...] = ()
    refusals: tuple[Refusal, ...] = ()


Decision = Claimed | Refused | NotOurs

"""Where pools, pods and what belongs to them come from: one contract, whatever stands behind it.

A source keeps a full local copy of each kind it was asked to watch and tells listeners what
changed. Implementations: a folder of manifests (`fleet.sources.folder`); an API server behind the
same contract and the same test suite.

Rules:
1. Objects are the frozen facts of `fleet.model`; a malformed object is skipped, the last good state
   of that name stays, and it stands in `problems()` until it is repaired or removed.
2. Listeners are called on the event loop, in order, after the local copy has changed. They must not
   block and must not raise.
3. A source that cannot read keeps serving its last good state, and `age()` grows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from fleet.model import Objective, Pod, Pool, Rewrite, Service

Object = Pool | Pod | Service | Objective | Rewrite


class Kind(StrEnum):
    """What can be watched."""

    POOL = "InferencePool"
    POD = "Pod"
    SERVICE = "Service"
    OBJECTIVE = "InferenceObjective"
    REWRITE = "InferenceModelRewrite"


class ObjectKey(NamedTuple):
    """Namespace and name; unique within a kind."""

    namespace: str
    name: str


class Change(NamedTuple):
    """One object came (`old` None), changed, or went (`new` None)."""

    kind: Kind
    key: ObjectKey
    old: Object | None
    new: Object | None


@dataclass(frozen=True, slots=True)
class Problem:
    """An object that could not be used, for people.

    Attributes:
        where: file and document, or API path.
        message: object, field, what is wrong and what to do.
    """

    where: str
    message: str


Listener = Callable[[Change], None]


class Watch(Protocol):
    """One running subscription."""

    def synced(self) -> bool:
        """Whether the first full list is in the local copy."""
        ...

    async def wait_synced(self) -> None:
        """Return once `synced()`."""
        ...

    def close(self) -> None:
        """Stop calling the listener."""
        ...


class Source(Protocol):
    """See the module's rules."""

    async def start(self) -> None:
        """Begin; raises only for what can never work (no such folder)."""
        ...

    def watch(self, kind: Kind, listener: Listener, *, namespace: str | None = None) -> Watch:
        """Tell `listener` of every object of `kind` there is, then of each change.

        Args:
            namespace: only this one; None = all that the fleet may see.
        """
        ...

    def objects(self, kind: Kind, *, namespace: str | None = None) -> Mapping[ObjectKey, Object]:
        """The local copy of what is watched, as of now."""
        ...

    def problems(self) -> tuple[Problem, ...]:
        """What is being skipped at the moment."""
        ...

    def age(self) -> float:
        """Seconds since the last complete good read."""
        ...

    async def close(self) -> None:
        """Stop; idempotent."""
        ...

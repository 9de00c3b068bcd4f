"""What a list+watch holds of its objects, and what each page or event changes: pure.

Rules:
1. Of every object only what `keep` makes of it is held, never the raw JSON.
2. An object that `keep` refuses is skipped: its last good value stays, with the reason as its
   fault, until it is repaired or removed.
3. What a complete list does not name is gone; unless the list held an object without a readable
   name, which may be any of them.
"""

import logging
from collections.abc import Callable, Container, Mapping
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from fleet.errors import ManifestError
from fleet.kube.contract import Raw

log = logging.getLogger(__name__)

T = TypeVar("T")


class Key(NamedTuple):
    """Namespace ("" for objects of the cluster) and name."""

    namespace: str
    name: str


class Delta(NamedTuple, Generic[T]):
    """One object came (`old` None), changed, or went (`new` None)."""

    key: Key
    old: T | None
    new: T | None


_NAMELESS = Key("", "")
"""Where faults of objects without a readable name stand."""


def key_of(raw: Mapping[str, Any]) -> Key | None:
    """Namespace and name; None if they cannot be read."""
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict):
        return None
    namespace, name = metadata.get("namespace") or "", metadata.get("name")
    if not isinstance(namespace, str) or not isinstance(name, str) or not name:
        return None
    return Key(namespace, name)


def version_of(raw: Mapping[str, Any]) -> str:
    """`metadata.resourceVersion` of an object, event object or list; "" if there is none."""
    metadata = raw.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


class Cache(Generic[T]):
    """The objects of one collection.

    Args:
        keep: what to hold of one object; ManifestError refuses it.
    """

    def __init__(self, keep: Callable[[Raw], T]) -> None:
        self._keep = keep
        self._values: dict[Key, T] = {}
        self._faults: dict[Key, str] = {}
        self._versions: dict[Key, str] = {}

    @property
    def values(self) -> Mapping[Key, T]:
        """The good values, as a view."""
        return MappingProxyType(self._values)

    @property
    def faults(self) -> Mapping[Key, str]:
        """Why the latest state of an object is not held, as a view."""
        return MappingProxyType(self._faults)

    def version(self, key: Key) -> str | None:
        """The resourceVersion at which an object was last seen, good or not; None if it is gone."""
        return self._versions.get(key)

    def take(self, raw: Raw) -> Delta[T] | None:
        """An object as it now is; None if nothing changed for whoever reads values."""
        key = key_of(raw)
        if key is None:
            self._faults[_NAMELESS] = "an object without a readable name; nobody knows which"
            return None
        self._versions[key] = version_of(raw)
        old = self._values.get(key)
        try:
            new = self._keep(raw)
        except ManifestError as error:
            self._faults[key] = str(error)
            return None
        except Exception as error:
            # One object that we fail to understand must not stop all the others.
            log.exception("object not understood", extra={"object": "/".join(key)})
            self._faults[key] = f"{'/'.join(key)}: {type(error).__name__}; see the log"
            return None
        self._faults.pop(key, None)
        self._values[key] = new
        return Delta(key, old, new) if old != new else None

    def drop(self, key: Key) -> Delta[T] | None:
        """An object is gone."""
        self._versions.pop(key, None)
        self._faults.pop(key, None)
        old = self._values.pop(key, None)
        return Delta(key, old, None) if old is not None else None

    def absent(self, listed: Container[Key]) -> list[Key]:
        """What a complete list of exactly these shows to be gone; nothing if that is in doubt."""
        if _NAMELESS in self._faults:
            return []
        return [key for key in self._versions if key not in listed]

    def begin_list(self) -> None:
        """A list begins: it will tell again of objects without a name."""
        self._faults.pop(_NAMELESS, None)

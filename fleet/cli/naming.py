"""Which pool is meant by the name that somebody types."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.errors import SettingsError
from fleet.local.api import CoordinatorApi


async def full_name(api: CoordinatorApi, pool: str) -> tuple[str, str]:
    """Namespace and name of `NAMESPACE/NAME`, or of a name that one pool of the shard map has.

    Raises:
        SettingsError: no such form, or a bare name that is not that of exactly one pool.
        Unreachable: no coordinator answers.
    """
    namespace, slash, name = pool.partition("/")
    if slash and namespace and name:
        return namespace, name
    if slash or not pool:
        raise SettingsError([f"{pool!r} is no name of a pool; say NAMESPACE/NAME"])
    return _only((await api.shard_map())["pools"], pool)


def _only(pools: Sequence[Mapping[str, Any]], name: str) -> tuple[str, str]:
    """The pool that has this name in whichever namespace."""
    found = sorted({str(pool["namespace"]) for pool in pools if pool["name"] == name})
    if len(found) == 1:
        return found[0], name
    if found:
        choices = " or ".join(f"{namespace}/{name}" for namespace in found[:5])
        raise SettingsError([f"{name}: several pools have this name; say {choices}"])
    raise SettingsError([f"{name}: no pool in the shard map has this name; say NAMESPACE/NAME"])

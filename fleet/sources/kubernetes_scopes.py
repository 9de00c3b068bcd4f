"""Which watches of pods there should be: one a namespace, or one for the whole cluster. Pure.

Every watch of a namespace is a connection and a share of the API server's memory, while one of the
cluster brings pods that nobody asked for. So the cluster is watched from `MANY` namespaces on, and
until there are only `FEW` again.
"""

from collections.abc import Collection
from typing import NamedTuple

MANY = 40
FEW = 20


class Scopes(NamedTuple):
    """What to watch: these namespaces, or (`whole`) the cluster instead."""

    namespaces: frozenset[str]
    whole: bool


def pod_scopes(
    wanted: Collection[str | None], allowed: frozenset[str], *, whole_now: bool
) -> Scopes:
    """What `wanted` asks for.

    Args:
        wanted: namespaces; None among them = all.
        allowed: the only namespaces that may be watched; empty = all.
        whole_now: the whole cluster is watched at the moment.
    """
    everything = None in wanted
    names = frozenset(name for name in wanted if name is not None)
    if allowed:
        return Scopes(allowed if everything else names & allowed, whole=False)
    many = len(names) > (FEW if whole_now else MANY)
    return Scopes(names, whole=everything or many)


def names_of(text: str) -> frozenset[str]:
    """A comma-separated setting."""
    return frozenset(name for name in (part.strip() for part in text.split(",")) if name)

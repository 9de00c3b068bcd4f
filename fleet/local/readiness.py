"""When a local fleet is ready: pure, from what the coordinators and Envoy say."""

from collections.abc import Iterable, Mapping
from typing import Any

from fleet.model import GroupKey

SERVING_PHASES = frozenset({"owned", "moving", "quarantined"})


def owners_of(shard_map: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Owners that acknowledged, by group (`ns/svc:port`), from `GET /api/v1/map`."""
    return {
        pool["group"]: tuple(pool["owners"])
        for pool in shard_map["pools"]
        if pool["phase"] in SERVING_PHASES and pool["owners"]
    }


def without_owner(
    groups: Iterable[GroupKey], owners: Mapping[str, tuple[str, ...]]
) -> tuple[GroupKey, ...]:
    """Groups of the manifests that nobody has acknowledged yet, in order."""
    return tuple(sorted(group for group in groups if not owners.get(str(group))))


def not_in_gateway(
    owners: Mapping[str, tuple[str, ...]],
    addresses: Mapping[str, str],
    pickers: Mapping[GroupKey, Iterable[str]],
    hosts: Mapping[str, frozenset[str]],
) -> tuple[GroupKey, ...]:
    """Groups whose owner's address Envoy does not have in every cluster of theirs, in order.

    Args:
        addresses: worker -> ext_proc `host:port`.
        pickers: group -> names of its ext_proc clusters.
        hosts: cluster -> addresses, from Envoy's admin.
    """
    missing = []
    for group, clusters in pickers.items():
        wanted = {addresses.get(owner, "") for owner in owners.get(str(group), ())}
        for cluster in clusters:
            if not wanted or not wanted <= hosts.get(cluster, frozenset()):
                missing.append(group)
                break
    return tuple(sorted(missing))

"""Keeps Envoy's files in step with the pools and pods, while they come and go.

Rules:
1. A picker's cluster enters the cluster file only when the leader has written the group's EDS file
   (Envoy refuses all clusters if one names a file that is not there), and stays while the pool is.
2. A route is written only when Envoy has both of its clusters: with a missing ext_proc cluster it
   would let requests pass without a pick (envoyproxy/envoy#45220). Routes go before clusters do.
3. Pods have files of their own, so that pod churn replaces no cluster; but when the files that
   Envoy can follow would not suffice, the pods stand in the cluster file.
4. No more pools than Envoy can follow: it aborts when it runs out of inotify instances.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fleet.local.atomic import write_atomic
from fleet.local.envoy_config import (
    ROUTE_TIMEOUT_SECONDS,
    Json,
    Picker,
    discovery_file,
    eds_file_name,
    picker_cluster,
    picker_of,
    pods_cluster,
    pods_file_name,
    pool_assignment,
    pool_cluster,
    pool_route,
    route_configuration,
)
from fleet.local.watches import UNKNOWN
from fleet.model import GroupKey, Pod, Pool, PoolRef, endpoints_of

log = logging.getLogger(__name__)

LiveClusters = Callable[[], Awaitable[Collection[str]]]


@dataclass(frozen=True, slots=True)
class Folders:
    """Where Envoy's files lie, inside the run folder."""

    root: Path

    @property
    def eds(self) -> Path:
        """The leader's files, one per route group."""
        return self.root / "eds"

    @property
    def pods(self) -> Path:
        """Our files, one per pool."""
        return self.root / "pods"

    @property
    def clusters(self) -> Path:
        """All clusters."""
        return self.root / "cds.json"

    @property
    def routes(self) -> Path:
        """All routes."""
        return self.root / "rds.json"

    @property
    def bootstrap(self) -> Path:
        """The static part."""
        return self.root / "envoy.json"


@dataclass(frozen=True, slots=True)
class _Routed:
    pool: Pool
    group: GroupKey
    picker: Picker

    @property
    def clusters(self) -> tuple[str, str]:
        return (self.picker.cluster, pods_cluster(self.pool.ref))


@dataclass(slots=True)
class _Written:
    """What stands in a file, so that only changes are written."""

    text: str = ""
    version: int = 0


@dataclass(slots=True)
class EnvoyFiles:
    """The writer; one per gateway.

    Attributes:
        live_clusters: names of the clusters that Envoy has, or raises AdminUnavailable.
        watches: files that Envoy can follow.
    """

    folders: Folders
    live_clusters: LiveClusters
    route_timeout_seconds: float = ROUTE_TIMEOUT_SECONDS
    watches: int = UNKNOWN
    _inline: bool = False
    _too_many: int = 0
    _clusters: _Written = field(default_factory=_Written)
    _routes: _Written = field(default_factory=_Written)
    _pods: dict[PoolRef, _Written] = field(default_factory=dict)
    _have_eds: set[GroupKey] = field(default_factory=set)
    _live: frozenset[str] = frozenset()

    def prepare(self) -> None:
        """Make the folders and the empty files that Envoy starts with."""
        for folder in (self.folders.eds, self.folders.pods):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._put(self.folders.clusters, self._clusters, [])
        self._put(self.folders.routes, self._routes, [route_configuration([])])

    @property
    def routes_version(self) -> str:
        """`version_info` of the routes as written last."""
        return str(self._routes.version)

    async def sync(self, pools: Iterable[Pool], pods: Collection[Pod]) -> tuple[PoolRef, ...]:
        """Bring all files in step; returns the pools that have no route yet, in order.

        Raises:
            AdminUnavailable: Envoy could not be asked; call again.
            OSError: a file could not be written.
        """
        routed = [
            _Routed(pool, pool.group, picker_of(pool.ref, pool.group))
            for pool in sorted(pools, key=lambda pool: pool.ref)
            if pool.group is not None
        ]
        self._write_routes(routed)
        self._write_clusters(routed, self._write_pods(routed, pods))
        if not all(self._is_live(item) for item in routed):
            self._live = frozenset(await self.live_clusters())
            self._write_routes(routed)
        return tuple(item.pool.ref for item in routed if not self._is_live(item))

    def _is_live(self, item: _Routed) -> bool:
        return item.group in self._have_eds and self._live.issuperset(item.clusters)

    def _write_routes(self, routed: Iterable[_Routed]) -> None:
        live = [item for item in routed if self._is_live(item)]
        routes = [pool_route(i.pool, i.picker, self.route_timeout_seconds) for i in live]
        self._put(self.folders.routes, self._routes, [route_configuration(routes)])

    def _write_pods(self, routed: Iterable[_Routed], pods: Collection[Pod]) -> dict[PoolRef, Json]:
        by_namespace: dict[str, list[Pod]] = {}
        for pod in pods:
            by_namespace.setdefault(pod.namespace, []).append(pod)
        assignments: dict[PoolRef, Json] = {}
        for item in routed:
            ref = item.pool.ref
            endpoints = endpoints_of(item.pool, by_namespace.get(ref.namespace, ()))
            assignments[ref] = pool_assignment(ref, endpoints)
            written = self._pods.setdefault(ref, _Written())
            self._put(self.folders.pods / pods_file_name(ref), written, [assignments[ref]])
        for ref in [ref for ref in self._pods if ref not in assignments]:
            del self._pods[ref]  # the file stays: Envoy may still have the cluster
        return assignments

    def _admitted(self, routed: Sequence[_Routed]) -> list[_Routed]:
        """Pools whose group has its file, at most as many as Envoy can follow; known ones first."""
        self._have_eds &= {item.group for item in routed}
        known = [item for item in routed if item.group in self._have_eds]
        fresh = [
            item
            for item in routed
            if item.group not in self._have_eds
            and (self.folders.eds / eds_file_name(item.group)).exists()
        ]
        chosen = [*known, *fresh][: self.watches]
        too_many = len(known) + len(fresh) - len(chosen)
        if too_many > self._too_many:
            log.error("gateway full", extra={"pools": len(routed), "without_route": too_many})
        self._too_many = too_many
        self._have_eds = {item.group for item in chosen}
        return chosen

    def _write_clusters(
        self, routed: Sequence[_Routed], assignments: Mapping[PoolRef, Json]
    ) -> None:
        clusters: dict[str, Json] = {}
        # Once inline, always inline: going back would replace all clusters again.
        self._inline = self._inline or 2 * len(routed) > self.watches
        for item in self._admitted(routed):
            ref = item.pool.ref
            cluster = picker_cluster(item.picker, item.group, self.folders.eds)
            clusters.setdefault(item.picker.cluster, cluster)
            pods = assignments[ref] if self._inline else self.folders.pods
            clusters[pods_cluster(ref)] = pool_cluster(item.pool, pods)
        self._live &= clusters.keys()
        by_name = sorted(clusters.values(), key=lambda cluster: str(cluster["name"]))
        self._put(self.folders.clusters, self._clusters, by_name)

    def _put(self, path: Path, written: _Written, resources: list[Json]) -> None:
        text = json.dumps(resources)
        if text == written.text and written.version:
            return
        version = written.version + 1
        write_atomic(path, json.dumps(discovery_file(version, resources)))
        written.text, written.version = text, version


def picker_clusters(pools: Mapping[GroupKey, Iterable[Pool]]) -> dict[GroupKey, frozenset[str]]:
    """The ext_proc clusters of each group: one, or one a pool in AI Gateway's form."""
    return {
        group: frozenset(picker_of(pool.ref, group).cluster for pool in members)
        for group, members in pools.items()
    }

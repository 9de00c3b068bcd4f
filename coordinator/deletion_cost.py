"""Which worker a scale-down should take: the one whose going moves the least.

A ReplicaSet that shrinks deletes the pods with the lowest `pod-deletion-cost` first. The leader
writes it on the worker pods, seldom: the API server is no place for metrics. Only the order counts,
so nothing is written while the costs that stand there order the workers well enough.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from coordinator.worker_pods import DELETION_COST, WorkerPod, WorkerPods
from fleet.clock import Clock
from fleet.errors import KubeConflict, KubeError, KubeNotFound
from fleet.kube.contract import KubeApi
from fleet.model import GroupKey, ShardMap
from fleet.telemetry import RateLimited

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""How often the order is looked at."""

REST_SECONDS = 60.0
"""After costs were written, nothing is written for this long."""

CLEARLY_HEAVIER = 1.2
"""Weights closer than this are the same: placement keeps workers within 1.10 of the mean."""


def weights_of(shard_map: ShardMap | None, loads: Mapping[GroupKey, float]) -> dict[str, float]:
    """What each worker's going would move: the load of the groups that it owns.

    Args:
        loads: streams per second by group.
    """
    if shard_map is None:
        return {}
    weights = dict.fromkeys(shard_map.incarnations, 0.0)
    for group, placement in shard_map.placements.items():
        for owner in placement.owners:
            weights[owner] = weights.get(owner, 0.0) + 1.0 + loads.get(group, 0.0)
    return weights


def costs_to_write(pods: Iterable[WorkerPod], weights: Mapping[str, float]) -> dict[str, int]:
    """New costs by pod; empty while the present ones order the pods well enough.

    A pod without a cost counts as 0, as Kubernetes has it; a worker without a weight owns nothing.
    """
    ordered = sorted(pods, key=lambda pod: (weights.get(pod.name, 0.0), pod.cost or 0, pod.name))
    if _well_ordered([(weights.get(pod.name, 0.0), pod.cost or 0) for pod in ordered]):
        return {}
    return {pod.name: rank for rank, pod in enumerate(ordered) if (pod.cost or 0) != rank}


def _well_ordered(pods: list[tuple[float, int]]) -> bool:
    """Whether each pod costs more than all that are clearly lighter; ordered by weight."""
    lighter, dearest = 0, None
    for weight, cost in pods:
        while CLEARLY_HEAVIER * pods[lighter][0] < weight:
            dearest = max(pods[lighter][1], pods[lighter][1] if dearest is None else dearest)
            lighter += 1
        if dearest is not None and cost <= dearest:
            return False
    return True


class DeletionCosts:
    """Writes the costs during a term."""

    def __init__(self, api: KubeApi, pods: WorkerPods, clock: Clock) -> None:
        self._api = api
        self._pods = pods
        self._clock = clock
        self._loud = RateLimited(log, clock)

    async def run(
        self, weights: Callable[[], Mapping[str, float]], leading: Callable[[], bool]
    ) -> None:
        """Look and write until cancelled.

        Args:
            weights: as of now; empty = not known yet.
            leading: whether the lease covers this moment.
        """
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            known = weights()
            if known and leading() and await self._write(known):
                await self._clock.sleep(REST_SECONDS)

    async def _write(self, weights: Mapping[str, float]) -> bool:
        """Write what must change; whether anything had to."""
        living = {pod.name: pod for pod in self._pods.living()}
        costs = costs_to_write(living.values(), weights)
        for name, cost in costs.items():
            body = {
                "metadata": {"uid": living[name].uid, "annotations": {DELETION_COST: str(cost)}}
            }
            try:
                await self._api.patch(f"/api/v1/namespaces/{self._api.namespace}/pods/{name}", body)
            except (KubeNotFound, KubeConflict):
                continue  # another pod, or none, bears this name by now
            except KubeError as error:
                self._loud.warning("deletion cost not written", error=error)
                break
        if costs:
            log.info("deletion costs written", extra={"pods": len(costs)})
        return bool(costs)

"""The fleet's own worker pods: who is gone, who is being deleted, where to find the others.

A pod that vanished proves its worker's death at once, long before silence does; and while the store
is away the pods' addresses are how the leader finds workers that it does not know yet. A worker's
id is its pod's name. Readiness is not looked at: an unready worker serves what it holds.
"""

import random
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.verdicts import PodAt
from fleet.clock import Clock
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.listwatch import ListWatch
from fleet.kube.listwatch_cache import Delta, Key
from fleet.kube.listwatch_condition import Condition
from fleet.kube.listwatch_events import Collection
from fleet.kube.listwatch_pace import Pace
from fleet.model import Addresses, Member
from fleet.model.pools import join_host_port
from fleet.settings.model import Settings, WorkerSettings

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"

MAX_GONE = 256
"""Pods remembered that are no more, the latest."""


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One pod of a worker, trimmed.

    Attributes:
        ip: "" until it has one, and after it lost it.
        ended: its phase is Failed or Succeeded: nothing runs in it any more.
        ending: it is being deleted.
        cost: its deletion cost; None if there is none that can be read.
    """

    name: str
    uid: str
    ip: str
    ended: bool
    ending: bool
    cost: int | None


def worker_pod(raw: Raw) -> WorkerPod:
    """What counts of a Pod."""
    metadata, status = raw["metadata"], _mapping(raw.get("status"))
    cost = str(_mapping(metadata.get("annotations")).get(DELETION_COST, ""))
    return WorkerPod(
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        ip=str(status.get("podIP") or ""),
        ended=status.get("phase") in ("Failed", "Succeeded"),
        ending=bool(metadata.get("deletionTimestamp")),
        cost=int(cost) if cost.removeprefix("-").isdecimal() and cost.isascii() else None,
    )


class WorkerPods:
    """Watches the worker pods of the fleet's own namespace. `start` it, `close` it."""

    def __init__(
        self, api: KubeApi, settings: Settings, clock: Clock, *, rng: random.Random
    ) -> None:
        """Nothing is asked yet; `rng` spreads what many processes would do at once."""
        self._ports = settings.worker
        self._living: dict[str, WorkerPod] = {}
        self._gone: dict[PodAt, None] = {}
        self._listeners: list[Callable[[], None]] = []
        self._watch = ListWatch[WorkerPod](
            api,
            Collection("/api/v1", "pods", api.namespace),
            keep=worker_pod,
            told=self._told,
            pace=Pace.of(settings.kubernetes),
            clock=clock,
            rng=rng,
            selectors={"labelSelector": settings.kubernetes.worker_selector},
        )

    def start(self) -> None:
        """Begin to watch; needs a running loop."""
        self._watch.start()

    async def close(self) -> None:
        """Stop; idempotent."""
        await self._watch.close()

    def condition(self) -> Condition:
        """How the watch is doing."""
        return self._watch.condition()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` after each change; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # -- views ----------------------------------------------------------------------------------

    def living(self) -> tuple[WorkerPod, ...]:
        """Pods that may run a worker, by name."""
        return tuple(pod for _, pod in sorted(self._living.items()))

    def gone(self) -> tuple[PodAt, ...]:
        """Pods that are no more: deleted, replaced under their name, or ended."""
        return tuple(self._gone)

    def ending(self) -> tuple[PodAt, ...]:
        """Pods that are being deleted."""
        return tuple(PodAt(pod.name, pod.ip) for pod in self._living.values() if pod.ending)

    def contacts(self, known: Container[str]) -> tuple[Member, ...]:
        """Workers whose name is not `known`, as far as a pod tells: id and addresses."""
        return tuple(
            Member(pod.name, "", _addresses(pod.ip, self._ports))
            for pod in self.living()
            if pod.ip and pod.name not in known
        )

    # -- changes --------------------------------------------------------------------------------

    def _told(self, deltas: Sequence[Delta[WorkerPod]]) -> None:
        for key, old, new in deltas:
            self._follow(key, old, new)
        for listener in tuple(self._listeners):
            listener()

    def _follow(self, key: Key, old: WorkerPod | None, new: WorkerPod | None) -> None:
        replaced = old is not None and (new is None or new.uid != old.uid)
        if replaced and old is not None and old.ip and not old.ended:
            self._bury(PodAt(old.name, old.ip))
        if new is None:
            self._living.pop(key.name, None)
        elif new.ended:
            self._living.pop(key.name, None)
            before = "" if old is None or replaced else old.ip
            self._bury(PodAt(new.name, new.ip or before))
        else:
            self._living[key.name] = new
            self._gone.pop(PodAt(new.name, ""), None)
            self._gone.pop(PodAt(new.name, new.ip), None)

    def _bury(self, pod: PodAt) -> None:
        self._gone[pod] = None
        while len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]


def _addresses(ip: str, ports: WorkerSettings) -> Addresses:
    return Addresses(
        ext_proc=join_host_port(ip, ports.ext_proc_port),
        health=join_host_port(ip, ports.health_port),
        internal=join_host_port(ip, ports.internal_port),
        http=join_host_port(ip, ports.http_port),
    )


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

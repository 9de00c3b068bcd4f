"""Who else has EndpointSlices in which Service.

Slices of other managers and those of other fleets are listed and watched; of each only the Service
and the writer are kept. Label selectors leave out this fleet's own. They cannot go by the fleet's
label alone: the controller that makes slices from selectors copies a Service's labels to them.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from coordinator.ownership import ServiceKey, SliceWriter
from fleet.clock import Clock
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.listwatch import ListWatch
from fleet.kube.listwatch_cache import Delta
from fleet.kube.listwatch_events import Collection
from fleet.kube.listwatch_pace import Pace
from fleet.kube.names import (
    FLEET_LABEL,
    MANAGED_BY,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from fleet.settings.model import KubernetesSettings

SLICES_API = "/apis/discovery.k8s.io/v1"


class _Slice(NamedTuple):
    """One foreign EndpointSlice, trimmed; without a Service it leads nowhere."""

    service: ServiceKey | None
    writer: SliceWriter


def _keep(raw: Raw) -> _Slice:
    metadata = raw["metadata"]
    labels = metadata.get("labels") or {}
    manager = labels.get(SLICE_MANAGED_BY_LABEL, "")
    fleet = labels.get(FLEET_LABEL, "") if manager == MANAGED_BY else ""
    service = labels.get(SERVICE_NAME_LABEL)
    return _Slice(
        ServiceKey(metadata["namespace"], service) if service else None,
        SliceWriter(manager, fleet),
    )


class WatchedSlices:
    """Implements `coordinator.claims.ForeignSlices`; `start` it, `close` it.

    Args:
        namespaces: only these are watched; none = all.
    """

    def __init__(
        self,
        api: KubeApi,
        *,
        fleet: str,
        settings: KubernetesSettings,
        namespaces: Sequence[str] = (),
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._counts: dict[ServiceKey, Counter[SliceWriter]] = {}
        self._writers: dict[ServiceKey, frozenset[SliceWriter]] = {}
        self._listeners: list[Callable[[ServiceKey], None]] = []
        self._synced = asyncio.Event()
        self._watches = [
            ListWatch(
                api,
                Collection(SLICES_API, "endpointslices", namespace),
                keep=_keep,
                told=self._told,
                pace=Pace.of(settings),
                clock=clock,
                rng=rng,
                synced=self._one_synced,
                selectors={"labelSelector": selector},
            )
            for namespace in (namespaces or (None,))
            for selector in (
                f"{SLICE_MANAGED_BY_LABEL}!={MANAGED_BY}",
                f"{SLICE_MANAGED_BY_LABEL}={MANAGED_BY},{FLEET_LABEL}!={fleet}",
            )
        ]

    def start(self) -> None:
        """Begin to list and watch."""
        for watch in self._watches:
            watch.start()

    async def close(self) -> None:
        """Stop; idempotent."""
        for watch in self._watches:
            await watch.close()

    @property
    def writers(self) -> Mapping[ServiceKey, frozenset[SliceWriter]]:
        """See `ForeignSlices.writers`."""
        return self._writers

    def on_change(self, listener: Callable[[ServiceKey], None]) -> None:
        """See `ForeignSlices.on_change`."""
        self._listeners.append(listener)

    def synced(self) -> bool:
        """See `ForeignSlices.synced`."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """See `ForeignSlices.wait_synced`."""
        await self._synced.wait()

    def _one_synced(self) -> None:
        if all(watch.synced for watch in self._watches):
            self._synced.set()

    def _told(self, deltas: Sequence[Delta[_Slice]]) -> None:
        for delta in deltas:
            for known, change in ((delta.old, -1), (delta.new, 1)):
                if known is not None and known.service is not None:
                    self._count(known.service, known.writer, change)

    def _count(self, service: ServiceKey, writer: SliceWriter, change: int) -> None:
        counts = self._counts.setdefault(service, Counter())
        counts[writer] += change
        present = frozenset(each for each, count in counts.items() if count > 0)
        if not present:
            del self._counts[service]
            self._writers.pop(service, None)
        elif self._writers.get(service) != present:
            self._writers[service] = present
        else:
            return
        for listener in self._listeners:
            listener(service)

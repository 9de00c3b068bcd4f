"""The pools as this coordinator has to do with them, apart from who serves which.

With a folder of manifests that is little: all of them are claimed. In a cluster it is what is
claimed and what is refused, the Services that claimed pools name, and the events that tell it.
"""

import random
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from coordinator.claims import Claims
from coordinator.events import Announcer
from coordinator.foreign_slices import WatchedSlices
from coordinator.groups import PoolGroups
from coordinator.ownership import Ownership
from coordinator.ownership.claim import listed
from coordinator.services import ServiceKeeper
from fleet.clock import Clock
from fleet.kube.contract import KubeApi
from fleet.model import ShardMap
from fleet.picking.choice import NO_CONFIGS, Configs
from fleet.picking.folder import ConfigSource
from fleet.settings.model import Settings
from fleet.sources.contract import Source


class Estate:
    """Everything about pools of one coordinator; needs a running loop.

    Args:
        cluster: the API server that the source reads, if it reads one.
        leading, shard_map: of this coordinator, as of now.
        picking: the picker configurations; None = there are none.

    Attributes:
        services: writes Services; None without a cluster.
    """

    def __init__(
        self,
        settings: Settings,
        source: Source,
        cluster: KubeApi | None,
        *,
        me: str,
        leading: Callable[[], bool],
        shard_map: Callable[[], ShardMap | None],
        clock: Clock,
        rng: random.Random,
        picking: ConfigSource | None = None,
    ) -> None:
        self._picking = picking
        ownership = Ownership(settings.ownership, settings.fleet)
        self.services: ServiceKeeper | None = None
        self._announcer: Announcer | None = None
        self._slices: WatchedSlices | None = None
        if cluster is None:
            self.claims = Claims(source, ownership)
        else:
            self._slices = WatchedSlices(
                cluster,
                fleet=settings.fleet,
                settings=settings.kubernetes,
                namespaces=listed(settings.kubernetes.watch_namespaces),
                clock=clock,
                rng=rng,
            )
            self.claims = Claims(source, ownership, self._slices)
            self.services = ServiceKeeper(cluster, self.claims, clock=clock, rng=rng)
            self._announcer = Announcer(
                cluster,
                self.claims,
                leading=leading,
                shard_map=shard_map,
                reporter=me,
                clock=clock,
                configs=self.configs,
            )
            if picking is not None:
                picking.on_change(self._announcer.look_again)
        self.groups = PoolGroups(self.claims)

    def configs(self) -> Configs:
        """The picker configurations as they are now."""
        return NO_CONFIGS if self._picking is None else self._picking.configs

    def start(self) -> Iterator[tuple[Coroutine[Any, Any, None], str]]:
        """Begin to watch; returns the loops that must live as long as the process."""
        if self._slices is not None:
            self._slices.start()
        if self._announcer is not None:
            yield self._announcer.run(), "pool events"

    async def close(self) -> None:
        """Stop watching; idempotent."""
        if self._slices is not None:
            await self._slices.close()

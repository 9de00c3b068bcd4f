"""All state streams of a worker: those that it feeds, and those that it is fed by."""

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from epp_worker.catalogue import Spawn
from epp_worker.handover.counts import StreamCounts, StreamFigures
from epp_worker.handover.following import OPENING_WAIT_SECONDS, Following
from epp_worker.handover.intake import SILENCE_SECONDS, Hearing
from epp_worker.handover.line import Ends
from epp_worker.handover.publisher import Publisher
from epp_worker.handover.service import StateService
from epp_worker.holdings import Holdings
from epp_worker.peers import Peers
from epp_worker.wheel import Wheel
from fleet.certificates import Certificates
from fleet.control.state_messages import StateHello
from fleet.model import GroupKey
from fleet.telemetry import RateLimited

if TYPE_CHECKING:
    from epp_worker.worker import Worker


class StateStreams:
    """Made on the running loop that serves the worker.

    Attributes:
        service: what other workers call.
    """

    def __init__(
        self,
        fleet: str,
        worker: str,
        holdings: Holdings,
        peers: Peers,
        *,
        spawn: Spawn,
        wheel: Wheel,
        certificates: Certificates | None,
        rng: random.Random,
        limited: RateLimited,
    ) -> None:
        loop = asyncio.get_running_loop()
        counts = self._counts = StreamCounts()
        self._now = loop.time

        def origin() -> str:
            return holdings.incarnation

        publisher = self._publisher = Publisher(
            holdings.get, origin, now=loop.time, call_later=loop.call_later, counts=counts
        )
        silence = wheel.lane(SILENCE_SECONDS)
        hearing = Hearing(holdings.get, lane=silence, now=loop.time, counts=counts)
        self.service = StateService(
            fleet, worker, certificates, holdings, publisher, hearing, counts, limited
        )

        def ends(settled: Callable[[Iterable[GroupKey]], None]) -> Ends:
            def hello() -> StateHello:
                return StateHello(fleet, worker, origin())

            return Ends(peers, hello, hearing, publisher, counts, limited, rng, settled)

        self._following = Following(
            worker, holdings, peers, spawn, wheel.lane(OPENING_WAIT_SECONDS), ends
        )
        holdings.on_group(self._group_changed)

    def _group_changed(self, key: GroupKey) -> None:
        self._publisher.group_changed(key)
        self._following.group_changed(key)

    def figures(self) -> StreamFigures:
        """For the metrics."""
        counts = self._counts
        return StreamFigures(
            lag_seconds=self.service.lag_seconds(self._now()),
            sent_bytes=counts.sent_bytes,
            received_bytes=counts.received_bytes,
            snapshots_sent=counts.snapshots_sent,
            snapshots_lagged=counts.snapshots_lagged,
            snapshots_applied=counts.snapshots_applied,
            unreadable=counts.unreadable,
            followers=len(self.service),
            following=len(self._following),
        )


def state_streams(
    worker: "Worker", wheel: Wheel, rng: random.Random, limited: RateLimited
) -> StateStreams:
    """Those of a worker."""
    return StateStreams(
        worker.settings.fleet,
        worker.id,
        worker.holdings,
        worker.peers,
        spawn=worker.supervisor.spawn,
        wheel=wheel,
        certificates=worker.certificates,
        rng=rng,
        limited=limited,
    )

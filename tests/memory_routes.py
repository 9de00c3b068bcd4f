"""Routes that stay in one process: for tests of what stands above the routes.

The fence is the same as for routes that others read: a higher epoch that stands is not overwritten.
"""

from collections.abc import Mapping, Sequence

from coordinator.election.contract import Term
from coordinator.routes.contract import Route, WriteResult
from fleet.clock import Clock
from fleet.model import GroupKey


class MemoryRoutes:
    """`coordinator.routes.contract.Routes` over a dictionary."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._routes: dict[GroupKey, Route] = {}

    async def read(self) -> Mapping[GroupKey, Route]:
        """See `Routes.read`."""
        return dict(self._routes)

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        """See `Routes.write`."""
        refused = [route.group for route in routes if self._refuses(route.group, term)]
        for route in routes:
            if route.group not in refused:
                self._routes[route.group] = route
        written = [route.group for route in routes if route.group not in refused]
        return WriteResult(tuple(written), (), tuple(refused), self._highest(term))

    async def remove(self, groups: Sequence[GroupKey], term: Term) -> WriteResult:
        """See `Routes.remove`."""
        refused = [group for group in groups if self._refuses(group, term)]
        for group in groups:
            if group not in refused:
                self._routes.pop(group, None)
        removed = [group for group in groups if group not in refused]
        return WriteResult(tuple(removed), (), tuple(refused), self._highest(term))

    def _refuses(self, group: GroupKey, term: Term) -> bool:
        standing = self._routes.get(group)
        higher = standing is not None and standing.version.epoch > term.epoch
        return higher or not term.valid(self._clock.monotonic())

    def _highest(self, term: Term) -> int:
        epochs = [route.version.epoch for route in self._routes.values()]
        return max([term.epoch, *epochs])

"""A model of what gateways follow: routes with revisions, slow, with several writers.

As slices they are compared at each write (another revision is a conflict). As files they are only
looked at before: a writer that is paused between its look and its write overwrites what is newer.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from coordinator.election.contract import Term
from coordinator.routes.contract import Route, WriteResult
from fleet.clock import Clock
from fleet.errors import RouteError
from fleet.model import GroupKey
from tests.sim.loop import Process, World
from tests.sim.network import ROUTES, Network

REQUEST_SECONDS = 1.0
"""One request; as for slices."""

ATTEMPTS = 5
"""Conflicts in a row, before a write is an error."""

FILE_SECONDS = 0.0005
"""Between the look at a file and its replacement."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One route as it stands."""

    route: Route
    revision: int


class RouteServer:
    """What stands, and who is told of it.

    Attributes:
        slow: seconds that each request takes longer.
        unfenced: writes that should have been refused.
        on_change: (group, before, after, writer), at once.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.standing: dict[GroupKey, Standing] = {}
        self.slow = 0.0
        self.unfenced: list[str] = []
        self.on_change: list[Callable[[GroupKey, Route | None, Route | None, str], None]] = []
        self._revision = 0

    def put(self, route: Route, writer: str) -> None:
        """Whatever stands there."""
        before = self.standing.get(route.group)
        self._revision += 1
        self.standing[route.group] = Standing(route, self._revision)
        self._tell(route.group, before, route, writer)

    def put_over(self, route: Route, revision: int, writer: str) -> bool:
        """Only over this revision (0: nothing)."""
        before = self.standing.get(route.group)
        if (0 if before is None else before.revision) != revision:
            return False
        self.put(route, writer)
        return True

    def remove(self, group: GroupKey, writer: str) -> None:
        before = self.standing.pop(group, None)
        if before is not None:
            self._tell(group, before, None, writer)

    def _tell(
        self, group: GroupKey, before: Standing | None, after: Route | None, writer: str
    ) -> None:
        for listener in self.on_change:
            listener(group, None if before is None else before.route, after, writer)


class SimRoutes:
    """One coordinator's hand: `coordinator.routes.contract.Routes`."""

    def __init__(
        self,
        process: Process,
        host: str,
        server: RouteServer,
        network: Network,
        clock: Clock,
        *,
        files: bool,
    ) -> None:
        """Args:
        files: routes are files on a disk that all share; else slices of an API server.
        """
        self._process = process
        self._host = host
        self._server = server
        self._network = network
        self._clock = clock
        self._files = files

    async def _ask(self, act: Callable[[], object]) -> object:
        """One request; raises RouteError if no answer comes."""
        answer: asyncio.Future[object] = self._process.loop.create_future()
        network, server, process = self._network, self._server, self._process

        def arrive() -> None:
            result = act()

            def there() -> None:
                if process.alive:
                    process.call(lambda: None if answer.done() else answer.set_result(result))

            network.pass_on(ROUTES, self._host, there)

        def begin() -> None:
            server.world.later(server.slow, arrive)

        network.pass_on(self._host, ROUTES, begin)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await answer
        except TimeoutError:
            raise RouteError("no answer in time; it may have landed") from None

    async def read(self) -> Mapping[GroupKey, Route]:
        if self._files:
            await asyncio.sleep(FILE_SECONDS)
            return {group: each.route for group, each in self._server.standing.items()}
        found = await self._ask(lambda: dict(self._server.standing))
        assert isinstance(found, dict)
        return {group: each.route for group, each in found.items()}

    async def write(self, routes: Sequence[Route], term: Term) -> WriteResult:
        return await self._each([(route.group, route) for route in routes], term)

    async def remove(self, groups: Sequence[GroupKey], term: Term) -> WriteResult:
        return await self._each([(group, None) for group in groups], term)

    async def _each(
        self, wanted: Sequence[tuple[GroupKey, Route | None]], term: Term
    ) -> WriteResult:
        outcomes: dict[str, list[GroupKey]] = {"written": [], "unchanged": [], "refused": []}
        highest, failed = term.epoch, None
        if self._files:
            await asyncio.sleep(FILE_SECONDS)  # the lock
            results = [await self._write_file(group, route, term) for group, route in wanted]
        else:
            tasks = [
                asyncio.create_task(self._write_slice(group, route, term))
                for group, route in wanted
            ]
            try:
                results = [await task for task in tasks]
            finally:
                for task in tasks:
                    task.cancel()
        for (group, _), (outcome, epoch) in zip(wanted, results, strict=True):
            highest = max(highest, epoch)
            if outcome == "failed":
                failed = group
            else:
                outcomes[outcome].append(group)
        if failed is not None:
            raise RouteError(f"{failed} not written")
        return WriteResult(
            tuple(outcomes["written"]),
            tuple(outcomes["unchanged"]),
            tuple(outcomes["refused"]),
            highest,
        )

    def _judge(
        self, before: Standing | None, route: Route | None, term: Term
    ) -> tuple[str, int] | None:
        """What need not be written, and the epoch that stands; None = write."""
        epoch = 0 if before is None else before.route.version.epoch
        if epoch > term.epoch or not term.valid(self._clock.monotonic()):
            return "refused", epoch
        if route == (None if before is None else before.route):
            return "unchanged", epoch
        return None

    def _fenced(self, group: GroupKey, term: Term) -> None:
        """About to write, not held up since the look: nothing newer may stand there."""
        standing = self._server.standing.get(group)
        if standing is not None and standing.route.version.epoch > term.epoch:
            found = f"{group} at {standing.route.version} overwritten in epoch {term.epoch}"
            self._server.unfenced.append(f"{found} by {self._process.name}")

    async def _write_file(
        self, group: GroupKey, route: Route | None, term: Term
    ) -> tuple[str, int]:
        server = self._server
        await asyncio.sleep(FILE_SECONDS + server.slow / 10)
        judged = self._judge(server.standing.get(group), route, term)
        if judged is not None:
            return judged
        looked = server.world.now
        await asyncio.sleep(FILE_SECONDS)
        if self._process.resumed < looked:
            self._fenced(group, term)
        if route is None:
            server.remove(group, self._process.name)
        else:
            server.put(route, self._process.name)
        return "written", term.epoch

    async def _write_slice(
        self, group: GroupKey, route: Route | None, term: Term
    ) -> tuple[str, int]:
        server, name = self._server, self._process.name
        try:
            for _ in range(ATTEMPTS):
                before = await self._ask(lambda: server.standing.get(group))
                assert before is None or isinstance(before, Standing)
                judged = self._judge(before, route, term)
                if judged is not None:
                    return judged
                revision = 0 if before is None else before.revision

                def act(revision: int = revision) -> bool:
                    standing = server.standing.get(group)
                    if (0 if standing is None else standing.revision) == revision:
                        self._fenced(group, term)
                    if route is not None:
                        return server.put_over(route, revision, name)
                    if standing is None or standing.revision != revision:
                        return False
                    server.remove(group, name)
                    return True

                if await self._ask(act):
                    return "written", term.epoch
        except RouteError:
            pass
        return "failed", term.epoch

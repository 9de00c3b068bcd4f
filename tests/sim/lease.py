"""The API server as the home of the lease: a Kubernetes Lease behind the model network.

The same machine as that of the routes: whoever is cut off from one is cut off from the other.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping

from fleet.errors import KubeError, KubeUnavailable
from fleet.kube.contract import Raw
from tests.fake_api_store import Event, Resource, selection
from tests.memory_kube import MemoryApiServer, MemoryKube
from tests.sim.loop import Process, World
from tests.sim.network import ROUTES, End, Ended, Host, Metadata, Network

WATCH = "watch"
DEFAULT_SECONDS = 5.0


class LeaseServer:
    """The API server's side."""

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self.api = MemoryApiServer()
        self.slow = 0.0
        self.host = Host(ROUTES, "10.0.1.1")
        self.host.process = world.outside
        self.host.listening = True
        self.host.serve = self._serve
        network.add(self.host)
        self._watches: list[End] = []
        self.api.store.listen(self._tell)

    def _serve(self, method: str, metadata: Metadata, end: End) -> None:
        self._watches.append(end)
        path, fields = dict(metadata)["path"], dict(metadata)["fields"]
        resource, namespace, _ = self.api.named(path)
        for raw in self.api.store.all(resource, selection(namespace, fields=fields)):
            self.network.send(end, {"type": "ADDED", "object": raw})

    def _tell(self, event: Event) -> None:
        self._watches = [end for end in self._watches if end.over is None]
        for end in self._watches:
            self.network.send(end, event)


class SimKube(MemoryKube):
    """One process' client."""

    def __init__(self, process: Process, host: str, server: LeaseServer) -> None:
        super().__init__(server.api)
        self._process = process
        self._host = host
        self._lease_server = server

    async def _answer(
        self,
        method: str,
        path: str,
        work: Callable[[Resource, str, str], Raw],
        timeout_seconds: float | None,
    ) -> Raw:
        answer: asyncio.Future[Raw] = self._process.loop.create_future()
        network, process, server = self._lease_server.network, self._process, self._lease_server

        def settle(result: Raw | KubeError) -> None:
            if answer.done():
                return
            if isinstance(result, KubeError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def act() -> None:
            try:
                result: Raw | KubeError = server.api.answer(method, path, work)
            except KubeError as error:
                result = error
            network.pass_on(ROUTES, self._host, lambda: process.call(settle, result))

        def arrive() -> None:
            server.world.later(server.slow, act)

        network.pass_on(self._host, ROUTES, arrive)
        try:
            async with asyncio.timeout(timeout_seconds or DEFAULT_SECONDS):
                return await answer
        except TimeoutError:
            raise KubeUnavailable("no answer in time; it may have landed") from None

    async def watch(
        self, path: str, *, params: Mapping[str, str], read_timeout_seconds: float
    ) -> AsyncGenerator[Raw, None]:
        server = self._lease_server
        fields = params.get("fieldSelector", "")
        resource, namespace, _ = server.api.named(path)
        select = selection(namespace, fields=fields)
        metadata = (("path", path), ("fields", fields))
        address = f"{server.host.address}:443"
        end = server.network.open(self._process, self._host, address, WATCH, metadata)
        try:
            while True:
                async with asyncio.timeout(read_timeout_seconds):
                    event = await end.get()
                if isinstance(event, dict):
                    yield event
                    continue
                seen = event.seen_through(select) if event.resource == resource else None
                if seen is not None:
                    yield seen
        except (TimeoutError, Ended):
            raise KubeUnavailable("the watch is silent or broken") from None
        finally:
            if end.over is None:
                server.network.close(end, Ended("CANCELLED"))

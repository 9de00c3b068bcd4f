"""Several workers inside the test that know each other, as the test's leader introduces them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from fleet.certificates import Certificates, Role
from fleet.clock import SystemClock
from fleet.control.codec import decode_up
from fleet.control.messages import (
    FORWARD_METHOD,
    Ask,
    Assign,
    OwnerOf,
    Owners,
    WorkerPeer,
)
from fleet.control.transport import dial
from fleet.model import EpochVersion, Hold
from fleet.settings import WorkerSettings
from fleet.sources.contract import Kind, Listener, Source, Watch
from fleet.sources.folder import FolderSource
from tests.worker_inprocess import (
    DEADLINE,
    Running,
    TestLeader,
    group_of,
    running_worker,
    write_pool,
)

AUTHORITY = "pool-a-epp.ns1.svc:9002"
GROUP = group_of("pool-a")
POD = "10.0.0.1"
OPTIONS = [("grpc.use_local_subchannel_pool", 1)]


def settings(**values: object) -> WorkerSettings:
    """Of a worker on loopback, on ephemeral ports."""
    ports = dict.fromkeys(("ext_proc_port", "health_port", "internal_port", "http_port"), 0)
    return WorkerSettings(host="127.0.0.1", **{**ports, **values})  # type: ignore[arg-type]


class SlowPods(FolderSource):
    """Knows the pools; the list of pods never comes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, poll_seconds=0.02, clock=SystemClock())

    def watch(self, kind: Kind, listener: Listener, *, namespace: str | None = None) -> Watch:
        """As asked, but for pods."""
        if kind is not Kind.POD:
            return super().watch(kind, listener, namespace=namespace)
        return _Unlisted()


class _Unlisted:
    """A watch that waits for its first list."""

    def synced(self) -> bool:
        return False

    async def wait_synced(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        """Nothing to end."""


class Neighbourhood:
    """Running workers and the leader of each, who is the same one."""

    def __init__(self) -> None:
        self.workers: list[Running] = []
        self.leaders: list[TestLeader] = []
        self.peers: dict[str, WorkerPeer] = {}
        self.asked: list[Ask] = []
        self.owners: dict[str, str | None] = {}
        """What the leader answers by pool, once it answers."""
        self.version = EpochVersion(1, 1)
        self._reading: list[asyncio.Task[None]] = []

    def __getitem__(self, number: int) -> Running:
        return self.workers[number]

    async def lead(self, own: Certificates | None = None) -> None:
        """Connect the leader to every worker, and introduce them to each other."""
        for running in self.workers:
            worker = running.worker
            self.peers[worker.id] = WorkerPeer(
                worker.addresses.internal, worker.holdings.incarnation
            )
        for running in self.workers:
            address = running.worker.addresses.internal
            channel = dial(address, own, Role.WORKER, OPTIONS) if own is not None else None
            leader = TestLeader(address, 1, channel=channel)
            await leader.connect()
            self.leaders.append(leader)

    async def assign(
        self, number: int, version: int, owner: str = "worker-1", **holds: Hold
    ) -> None:
        """Give a worker its share, and wait until it holds it."""
        share = self.workers[number].share(version, 1, owner, **holds)
        leader = self.leaders[number]
        await leader.say(Assign(share, True, self.peers))
        await leader.report_when(
            lambda report: (
                report.version == share.version and all(hold.synced for hold in report.holds)
            )
        )

    def answer(self) -> None:
        """From now on the leader answers what is asked."""
        for leader in self.leaders:
            self._reading.append(asyncio.create_task(self._answer(leader)))

    async def _answer(self, leader: TestLeader) -> None:
        while True:
            data = await leader.call.read()
            if not isinstance(data, bytes):
                return
            message = decode_up(data)
            if isinstance(message, Ask):
                self.asked.append(message)
                said = {group_of(pool): owner for pool, owner in self.owners.items()}
                owners = tuple(OwnerOf(group, said.get(group)) for group in message.groups)
                await leader.say(Owners(self.version, owners))

    async def leave(self) -> None:
        """The leader goes."""
        for task in self._reading:
            task.cancel()
        await asyncio.gather(*self._reading, return_exceptions=True)
        for leader in self.leaders:
            await leader.close()
        self.leaders.clear()


@asynccontextmanager
async def neighbourhood(
    folder: Path,
    count: int = 2,
    *,
    own: WorkerSettings | None = None,
    certificates: Callable[[int], Certificates | None] = lambda _: None,
    leader: Certificates | None = None,
    pod: str = f"{POD}:8000",
    sources: Callable[[int], Source | None] = lambda _: None,
) -> AsyncIterator[Neighbourhood]:
    """`worker-0`, `worker-1`, ... over pools a and b, led and introduced.

    Args:
        pod: where pool a's only pod listens.
        sources: of each worker; None = the folder.
    """
    ip, port = pod.split(":")
    write_pool(folder, "pool-a", ip, port=int(port))
    write_pool(folder, "pool-b", "10.0.0.2")
    made = Neighbourhood()
    async with AsyncExitStack() as stack:
        for number in range(count):
            running = await stack.enter_async_context(
                running_worker(
                    folder,
                    worker_settings=own or settings(),
                    worker_id=f"worker-{number}",
                    certificates=certificates(number),
                    source=sources(number),
                )
            )
            made.workers.append(running)
        await made.lead(leader)
        stack.push_async_callback(made.leave)
        yield made


async def ended(call: Any) -> tuple[grpc.StatusCode, str]:
    """How a stream ends, whatever else comes on it."""
    async with asyncio.timeout(DEADLINE):
        code: grpc.StatusCode = await call.code()
        details: str = await call.details()
        return code, details


Context = grpc.aio.ServicerContext[Any, Any]


class StubOwner(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """The internal port of a worker that the test plays: takes forwarded streams."""

    def __init__(self, serve: Callable[[Context], Awaitable[None]]) -> None:
        self._serve = serve
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))
        self.calls = 0
        self.over = 0
        self.metadata: dict[str, str] = {}
        self.port = 0

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """One method, whoever calls."""
        assert handler_call_details.method == FORWARD_METHOD
        metadata = handler_call_details.invocation_metadata or ()
        self.metadata = {str(key): str(value) for key, value in metadata}
        return grpc.stream_stream_rpc_method_handler(self._call)

    async def _call(self, _: object, context: Context) -> None:
        self.calls += 1
        try:
            await self._serve(context)
        finally:
            self.over += 1

    async def __aenter__(self) -> "StubOwner":
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    async def die(self) -> None:
        """End every call and connection at once."""
        await self._server.stop(None)

    @property
    def peer(self) -> WorkerPeer:
        """As workers are told of it."""
        return WorkerPeer(f"127.0.0.1:{self.port}", f"life-{self.port}")

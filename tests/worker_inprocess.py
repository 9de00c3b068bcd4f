"""A whole worker inside the test, on ephemeral ports, and a leader that the test plays."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.datalayer.models import ModelSource
from epp_worker.main import Listeners
from epp_worker.process import PATH
from epp_worker.surroundings import Surroundings
from epp_worker.worker import Worker
from fleet.certificates import Certificates, ServingTls
from fleet.clock import SystemClock
from fleet.control.codec import decode_up, encode
from fleet.control.messages import (
    CONTROL_METHOD,
    Ask,
    Assign,
    Down,
    HoldReport,
    LeaderHello,
    Report,
    Unknown,
    Up,
    WorkerHello,
)
from fleet.model import (
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Pool,
    PoolId,
    PoolRef,
    Share,
    ShareEntry,
)
from fleet.picking.folder import ConfigSource
from fleet.settings import BoundSettings, MembershipSettings, Settings, WorkerSettings
from fleet.settings.picking import PickingSettings
from fleet.sources.contract import Kind, ObjectKey, Source
from fleet.sources.folder import FolderSource
from fleet.store.contract import Store
from fleet.store.memory import MemoryServer, MemoryStore
from tests import manifest_texts
from tests.unit import extproc_messages
from tests.worker_fakes import FakeScraper

TOKEN = "the-fleets-token"
DEADLINE = 20.0


def group_of(pool: str, namespace: str = "ns1") -> GroupKey:
    """The group of a pool as `manifest_texts.pool` makes it."""
    return GroupKey(namespace, f"{pool}-epp", 9002)


def write_pool(
    folder: Path,
    name: str,
    ip: str,
    *,
    uid: str = "",
    port: int = 8000,
    annotations: Mapping[str, str] | None = None,
) -> None:
    """A manifest with one pool and one ready pod."""
    pool = manifest_texts.pool(name, ports=(port,))
    if uid:
        pool["metadata"]["uid"] = uid
    if annotations:
        pool["metadata"]["annotations"] = dict(annotations)
    pod = manifest_texts.pod(f"{name}-0", labels={"app": name}, ip=ip)
    folder.joinpath(f"{name}.yaml").write_text(manifest_texts.text(pool, pod))


class Running:
    """A worker that runs, and what a test needs of it."""

    def __init__(self, worker: Worker, server: MemoryServer, source: Source) -> None:
        self.worker = worker
        self.server = server
        self.source = source
        self.scraper = FakeScraper()
        self.fatal: list[str] = []
        self.refused: list[str] = []

    def share(self, version: int, epoch: int = 1, owner: str = "worker-9", **holds: Hold) -> Share:
        """A share of this incarnation: pool name (with `_` for `-`) -> hold.

        Args:
            owner: of what this worker does not own itself.
        """
        entries = []
        for label, hold in holds.items():
            name = label.replace("_", "-")
            ref = PoolRef("ns1", name)
            pool = self.source.objects(Kind.POOL)[ObjectKey("ns1", name)]
            uid = pool.uid if isinstance(pool, Pool) else ""
            owned_by = self.worker.id if hold is Hold.OWNER else owner
            entries.append(ShareEntry(group_of(name), hold, (PoolId(ref, uid),), owned_by))
        incarnation = self.worker.holdings.incarnation
        ver = EpochVersion(epoch, version)
        return Share("default", self.worker.id, incarnation, ver, tuple(entries))


@asynccontextmanager
async def running_worker(
    folder: Path,
    *,
    worker_settings: WorkerSettings | None = None,
    bounds: BoundSettings | None = None,
    certificates: Certificates | None = None,
    tls: ServingTls | None = None,
    source: Source | None = None,
    worker_id: str = "worker-0",
    store: Store | None = None,
    token: str = TOKEN,
    picking: PickingSettings | None = None,
    models: ModelSource | None = None,
) -> AsyncIterator[Running]:
    """A worker on 127.0.0.1 over the manifests in `folder`, or over another `source`.

    Args:
        certificates: of its internal port; None = it speaks plaintext.
        tls: of its gateways' port; the same.
        store: closed with it; None = one in memory, of its own.
        picking: where its picker configurations are; None = it looks for none.
        models: where model servers are asked what they serve; None = nowhere.
    """
    clock = SystemClock()
    server = MemoryServer(clock)
    own = worker_settings or WorkerSettings(
        host="127.0.0.1", ext_proc_port=0, health_port=0, internal_port=0, http_port=0
    )
    settings = Settings(
        membership=MembershipSettings(heartbeat_seconds=0.1),
        worker=own,
        bounds=bounds or BoundSettings(),
    )
    source = source or FolderSource(folder, poll_seconds=0.02, clock=clock)
    fatal: list[str] = []
    refused: list[str] = []
    scraper = FakeScraper()
    worker = Worker(
        worker_id,
        settings,
        token,
        Surroundings(
            source,
            store or MemoryStore(clock, server),
            scraper,
            clock,
            random.Random(1),
            certificates=certificates,
            tls=tls,
            picking=None if picking is None else ConfigSource(picking, clock),
            models=models,
        ),
        fatal=fatal.append,
        refused=refused.append,
    )
    running = Running(worker, server, source)
    running.scraper, running.fatal, running.refused = scraper, fatal, refused
    listeners = Listeners(worker, token)
    try:
        await listeners.open_probes()
        await worker.open_source()
        await listeners.open_service()
        await worker.join()
        yield running
    finally:
        await listeners.close()
        await worker.close()


class TestLeader:
    """One control stream to a worker."""

    __test__ = False

    def __init__(
        self,
        address: str,
        epoch: int,
        token: str = TOKEN,
        channel: grpc.aio.Channel | None = None,
    ) -> None:
        """Args:
        channel: instead of one that speaks plaintext to `address`.
        """
        self.epoch = epoch
        self._channel = channel or grpc.aio.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1)]
        )
        untyped: Any = self._channel
        metadata = (("authorization", f"Bearer {token}"),)
        self.call: Any = untyped.stream_stream(CONTROL_METHOD)(metadata=metadata)

    async def connect(self) -> WorkerHello:
        """Say hello and return the worker's."""
        await self.say(LeaderHello("default", self.epoch, LeaderInfo("c0", "h:1", "h:2")))
        message = await self.next()
        assert isinstance(message, WorkerHello)
        return message

    async def say(self, message: Down) -> None:
        """Send one message."""
        await self.call.write(encode(message))

    async def next(self) -> Up | Unknown | None:
        """The next message of the worker; None at the end."""
        try:
            async with asyncio.timeout(DEADLINE):
                data = await self.call.read()
        except grpc.aio.AioRpcError:
            return None
        return decode_up(data) if isinstance(data, bytes) else None

    async def report_when(self, wanted: Callable[[Report], bool]) -> Report:
        """The first report for which `wanted` holds."""
        async with asyncio.timeout(DEADLINE):
            while True:
                message = await self.next()
                if isinstance(message, Ask):
                    continue
                assert isinstance(message, Report)
                if wanted(message):
                    return message

    async def ask_when(self, wanted: Callable[[Ask], bool]) -> Ask:
        """The first question for which `wanted` holds."""
        async with asyncio.timeout(DEADLINE):
            while True:
                message = await self.next()
                assert message is not None
                if isinstance(message, Ask) and wanted(message):
                    return message

    async def assign(self, share: Share) -> Report:
        """Assign, and return the report in which all that is owned or opened is synced."""
        await self.say(Assign(share))
        return await self.report_when(
            lambda report: report.version == share.version and all(map(_is_synced, report.holds))
        )

    async def end(self) -> grpc.StatusCode:
        """How the worker ended the stream."""
        async with asyncio.timeout(DEADLINE):
            code: grpc.StatusCode = await self.call.code()
        return code

    async def close(self) -> None:
        """Break the stream."""
        self.call.cancel()
        await self._channel.close(None)


def _is_synced(hold: HoldReport) -> bool:
    return hold.synced


def _same(message: bytes) -> bytes:
    return message


class Gateway:
    """A stock gRPC client that speaks ext_proc with the authority of some gateway."""

    def __init__(self, address: str, authority: str) -> None:
        self.channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.default_authority", authority),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )

    def stream(self, metadata: tuple[tuple[str, str], ...] = ()) -> Any:
        """Open one ext_proc stream."""
        untyped: Any = self.channel
        return untyped.stream_stream(PATH, _same, _same)(metadata=metadata)

    async def pick(self) -> str:
        """One request through the request phase; the endpoint that was picked."""
        call = self.stream()
        picked = await picked_on(call)
        await call.done_writing()
        async with asyncio.timeout(DEADLINE):
            while isinstance(await call.read(), bytes):
                continue
            assert await call.code() is grpc.StatusCode.OK
        return picked

    async def close(self) -> None:
        """Close the connection."""
        await self.channel.close(None)


async def picked_on(call: Any, body: bytes = b'{"model": "m"}') -> str:
    """Send a request on an open stream; the endpoint that comes back."""
    await call.write(extproc_messages.request_headers())
    await call.write(extproc_messages.request_body(body, end_of_stream=True))
    async with asyncio.timeout(DEADLINE):
        data = await call.read()
    if not isinstance(data, bytes):
        raise AssertionError(f"no answer: {await call.code()} {await call.details()}")
    return endpoint_in(data)


def endpoint_in(data: bytes) -> str:
    """The endpoint that a RequestHeaders answer names."""
    response = ProcessingResponse.FromString(data)
    headers = response.request_headers.response.header_mutation.set_headers
    named = {one.header.key: one.header.raw_value.decode() for one in headers}
    return str(named["x-gateway-destination-endpoint"])


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a real condition, at most `DEADLINE` seconds."""
    deadline = asyncio.get_running_loop().time() + DEADLINE
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"never came: {what}"
        await asyncio.sleep(0.01)

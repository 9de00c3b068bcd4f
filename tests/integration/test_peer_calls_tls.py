"""Who may forward streams to a worker and ask what it holds: workers of its fleet, nobody else."""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from epp_worker.forwarding.calls import GROUP_KEY
from fleet.certificates import Certificates, Role
from fleet.certificates.authority import Pair
from fleet.control.messages import FORWARD_METHOD, HOLDS_METHOD
from fleet.control.peer_messages import HOLDS, AskHolds
from fleet.model import Hold
from tests.neighbours import AUTHORITY, GROUP, POD, neighbourhood
from tests.tls_files import certificates, new_ca
from tests.unit import extproc_messages
from tests.worker_inprocess import DEADLINE, TOKEN, Gateway, Running, running_worker, write_pool

OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
NAME = ("grpc.ssl_target_name_override", "worker.default.epp-fleet.internal")
METHODS = (FORWARD_METHOD, HOLDS_METHOD)

Made = Callable[..., Certificates]


@pytest.fixture
def ca() -> Pair:
    """The fleet's."""
    return new_ca()


@pytest.fixture
def made(tmp_path: Path, ca: Pair) -> Made:
    """Makes the files of one process, of the fleet's CA unless told otherwise."""

    def make(role: Role, *, signed_by: Pair | None = None) -> Certificates:
        return certificates(tmp_path / secrets.token_hex(4), signed_by or ca, role)

    return make


def secured(address: str, ca: Pair, own: Certificates | None) -> grpc.aio.Channel:
    """Takes the worker for what it is, and shows `own`."""
    if own is None:
        credentials = grpc.ssl_channel_credentials(ca.certificate)
    else:
        files = own.bundle()
        credentials = grpc.ssl_channel_credentials(ca.certificate, files.key, files.certificate)
    return grpc.aio.secure_channel(address, credentials, options=[*OPTIONS, NAME])


async def refusal(channel: Any, method: str, token: str | None) -> grpc.StatusCode:
    """How a call ends that says what a good one says."""
    metadata = [(GROUP_KEY, str(GROUP))]
    if token is not None:
        metadata.append(("authorization", f"Bearer {token}"))
    call = channel.stream_stream(method)(metadata=metadata)
    try:
        await call.write(
            HOLDS.encode(AskHolds("default", "worker-7"))
            if method == HOLDS_METHOD
            else extproc_messages.request_headers(end_of_stream=True)
        )
        assert not isinstance(await call.read(), bytes), "it was answered"
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # refused before the message was sent; the code says how
    async with asyncio.timeout(DEADLINE):
        code: grpc.StatusCode = await call.code()
    await channel.close(None)
    return code


def untouched(running: Running) -> bool:
    """Whether nothing of any stream reached the service."""
    counters = running.worker.counters
    return not any(counters.streams_total) and not counters.streams_open


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("who", "token", "wanted"),
    [
        ("no certificate", TOKEN, grpc.StatusCode.UNAVAILABLE),
        ("another CA", TOKEN, grpc.StatusCode.UNAVAILABLE),
        ("plaintext", TOKEN, grpc.StatusCode.UNAVAILABLE),
        ("coordinator", TOKEN, grpc.StatusCode.PERMISSION_DENIED),
        ("worker", "guessed", grpc.StatusCode.UNAUTHENTICATED),
        ("worker", None, grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_a_peer_without_the_fleets_certificate_gets_nothing(
    tmp_path: Path,
    made: Made,
    ca: Pair,
    method: str,
    who: str,
    token: str | None,
    wanted: grpc.StatusCode,
) -> None:
    """Refused before anything is read of the call: no stream is counted, none is held."""
    own: dict[str, Callable[[], Certificates | None]] = {
        "no certificate": lambda: None,
        "another CA": lambda: made(Role.WORKER, signed_by=new_ca()),
        "coordinator": lambda: made(Role.COORDINATOR),
        "worker": lambda: made(Role.WORKER),
    }
    folder = tmp_path / "manifests"
    folder.mkdir()
    write_pool(folder, "pool-a", POD)
    async with running_worker(folder, certificates=made(Role.WORKER)) as running:
        running.worker.assign(running.share(1, pool_a=Hold.OWNER))
        address = running.worker.addresses.internal
        if who == "plaintext":
            channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            channel = secured(address, ca, own[who]())
        assert await refusal(channel, method, token) is wanted
        assert untouched(running)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("token", ["guessed", None])
async def test_on_plaintext_the_token_decides(
    tmp_path: Path, method: str, token: str | None
) -> None:
    """The local mode has no certificates."""
    write_pool(tmp_path, "pool-a", POD)
    async with running_worker(tmp_path) as running:
        running.worker.assign(running.share(1, pool_a=Hold.OWNER))
        address = running.worker.addresses.internal
        channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        assert await refusal(channel, method, token) is grpc.StatusCode.UNAUTHENTICATED
        assert untouched(running)


async def test_workers_of_the_fleet_forward_and_ask_by_tls(
    tmp_path: Path, made: Made, ca: Pair
) -> None:
    """The same as in plaintext, under certificates of the role."""
    folder = tmp_path / "manifests"
    folder.mkdir()
    async with neighbourhood(
        folder, certificates=lambda _: made(Role.WORKER), leader=made(Role.COORDINATOR)
    ) as neighbours:
        await neighbours.assign(1, 1, pool_a=Hold.OWNER)
        await neighbours.assign(0, 1)
        neighbours.owners["pool-a"] = "worker-1"
        neighbours.answer()
        gateway = Gateway(neighbours[0].worker.addresses.ext_proc, AUTHORITY)
        assert await gateway.pick() == POD + ":8000"
        await gateway.close()
        owner = neighbours[1].worker
        channel: Any = secured(owner.addresses.internal, ca, made(Role.WORKER))
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        ask = HOLDS.encode(AskHolds("default", "worker-7"))
        holds = HOLDS.answer(await channel.unary_unary(HOLDS_METHOD)(ask, metadata=metadata))
        await channel.close(None)
        assert (holds.worker, holds.incarnation) == ("worker-1", owner.holdings.incarnation)
        assert holds.version == (1, 1)
        (entry,) = holds.entries
        assert (entry.group, entry.hold, entry.owner) == (GROUP, Hold.OWNER, "worker-1")


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        (HOLDS.encode(AskHolds("other", "worker-7")), grpc.StatusCode.PERMISSION_DENIED),
        (b"\xc1", grpc.StatusCode.INVALID_ARGUMENT),
        (b"", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_question_of_another_fleet_is_not_answered(
    tmp_path: Path, ask: bytes, wanted: grpc.StatusCode
) -> None:
    """Nor one that cannot be read."""
    async with running_worker(tmp_path) as running:
        channel: Any = grpc.aio.insecure_channel(running.worker.addresses.internal, options=OPTIONS)
        metadata = (("authorization", f"Bearer {TOKEN}"),)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary(HOLDS_METHOD)(ask, metadata=metadata)
        assert error.value.code() is wanted
        await channel.close(None)


@pytest.mark.parametrize("group", [None, "pool-a-epp", "ns1/pool-a-epp:x"])
async def test_a_forwarded_stream_names_its_group(tmp_path: Path, group: str | None) -> None:
    """Else it is refused, whatever its authority says."""
    write_pool(tmp_path, "pool-a", POD)
    async with running_worker(tmp_path) as running:
        running.worker.assign(running.share(1, pool_a=Hold.OWNER))
        options = [*OPTIONS, ("grpc.default_authority", AUTHORITY)]
        address = running.worker.addresses.internal
        channel: Any = grpc.aio.insecure_channel(address, options=options)
        metadata = [("authorization", f"Bearer {TOKEN}")]
        if group is not None:
            metadata.append((GROUP_KEY, group))
        call = channel.stream_stream(FORWARD_METHOD)(metadata=metadata)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert untouched(running)
        await channel.close(None)

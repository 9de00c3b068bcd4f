"""Workers and leaders reached over gRPC and plain TCP: what stands behind `coordinator.reach`."""

import asyncio
from typing import Any

import grpc
import grpc.aio

from coordinator.leader.probe import answers, connect_both
from coordinator.reach import StreamEnded
from coordinator.verdicts import Connect
from fleet.certificates import Certificates, Role
from fleet.control import codec
from fleet.control.handshake import fault
from fleet.control.messages import (
    CONTROL_METHOD,
    SEEN_EPOCH_KEY,
    WATCH_MAP_METHOD,
    Down,
    MapUpdate,
    Unknown,
    Up,
    WatchMap,
)
from fleet.control.transport import dial
from fleet.model import Addresses, LeaderInfo, Member

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", codec.MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", codec.MAX_MESSAGE_BYTES),
]
CONTROL_OPTIONS: list[tuple[str, int]] = [
    *CHANNEL_OPTIONS,
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
]

STATUS_SECONDS = 1.0
"""How long the status of a call that is over may take to be told."""

Call = grpc.aio.StreamStreamCall[bytes, bytes]


class GrpcControlStream:
    """`coordinator.reach.ControlStream` over a channel of its own."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        untyped: Any = channel
        self._channel = channel
        self._call: Call = untyped.stream_stream(CONTROL_METHOD)(metadata=metadata)

    async def send(self, message: Down) -> None:
        """See `ControlStream.send`."""
        try:
            await self._call.write(codec.encode(message))
        except grpc.aio.AioRpcError as error:
            raise _ended(error.code(), error.trailing_metadata(), error.details()) from None
        except asyncio.InvalidStateError:
            raise await self._status() from None

    async def receive(self) -> Up | Unknown | None:
        """See `ControlStream.receive`."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _ended(error.code(), error.trailing_metadata(), error.details()) from None
        except asyncio.InvalidStateError:
            raise await self._status() from None
        return codec.decode_up(data) if isinstance(data, bytes) else None

    async def _status(self) -> StreamEnded:
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                code = await self._call.code()
                trailing = await self._call.trailing_metadata()
                return _ended(code, trailing, await self._call.details())
        except TimeoutError:
            return StreamEnded("UNKNOWN", "the call is over, its status never came")

    async def finish(self) -> None:
        """See `ControlStream.finish`."""
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            raise await self._status() from None

    async def close(self) -> None:
        """See `ControlStream.close`."""
        self._call.cancel()
        await self._channel.close(None)


class GrpcMapStream:
    """`coordinator.reach.MapStream` over a channel of its own."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        untyped: Any = channel
        self._channel = channel
        self._call: grpc.aio.UnaryStreamCall[bytes, bytes] = untyped.unary_stream(WATCH_MAP_METHOD)(
            codec.encode(WatchMap(parts=True)), metadata=metadata
        )

    async def receive(self) -> MapUpdate | None:
        """See `MapStream.receive`."""
        try:
            data = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise _ended(error.code(), error.trailing_metadata(), error.details()) from None
        return codec.decode_map_update(data) if isinstance(data, bytes) else None

    async def close(self) -> None:
        """See `MapStream.close`."""
        self._call.cancel()
        await self._channel.close(None)


def _ended(code: grpc.StatusCode, trailing: Any, details: str | None) -> StreamEnded:
    seen = None
    for key, value in trailing or ():
        text = value.decode() if isinstance(value, bytes) else value
        if key == SEEN_EPOCH_KEY and text.isascii() and text.isdigit():
            seen = int(text)
    return StreamEnded(code.name, details or "", seen_epoch=seen)


class GrpcReach:
    """`coordinator.reach.Reach` for one fleet.

    Args:
        certificates: of the internal port; None = it speaks plaintext.
    """

    def __init__(self, token: str, certificates: Certificates | None = None) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._certificates = certificates

    def control(self, contact: Member) -> GrpcControlStream:
        """See `WorkerReach.control`."""
        address = contact.addresses.internal
        channel = dial(address, self._certificates, Role.WORKER, CONTROL_OPTIONS)
        return GrpcControlStream(channel, self._metadata)

    async def worker_fault(self, contact: Member) -> str | None:
        """See `WorkerReach.worker_fault`."""
        return await self._fault(contact.addresses.internal, Role.WORKER)

    async def connects(self, addresses: Addresses) -> tuple[Connect, Connect]:
        """See `WorkerReach.connects`."""
        return await connect_both(addresses)

    async def answers(self, addresses: Addresses) -> bool:
        """See `WorkerReach.answers`."""
        return await answers(addresses)

    def map_stream(self, leader: LeaderInfo) -> GrpcMapStream:
        """See `LeaderReach.map_stream`."""
        channel = dial(leader.internal, self._certificates, Role.COORDINATOR, CHANNEL_OPTIONS)
        return GrpcMapStream(channel, self._metadata)

    async def leader_fault(self, leader: LeaderInfo) -> str | None:
        """See `LeaderReach.leader_fault`."""
        return await self._fault(leader.internal, Role.COORDINATOR)

    async def _fault(self, address: str, role: Role) -> str | None:
        if self._certificates is None:
            return None
        return await fault(address, self._certificates, role)

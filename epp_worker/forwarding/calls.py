"""One forwarded stream as a call to its owner: raw messages, and how it ended."""

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
import grpc.aio

from epp_worker.peers import Peers
from fleet.control.messages import FORWARD_METHOD
from fleet.model import GroupKey

GROUP_KEY = "epp-fleet-group"
"""Metadata of a forwarded stream: the route group, `namespace/service:port`."""
SAID_KEY = "epp-fleet-said"
"""Trailing metadata of an end that the owner itself gave, other than a broken connection's."""
UNAVAILABLE = 14


@dataclass(frozen=True, slots=True)
class End:
    """How a call ended.

    Attributes:
        said: by the owner itself; else it is the transport's word, or the owner took no call.
    """

    code: int
    message: str
    said: bool


class OwnerCall(Protocol):
    """A call to a group's owner."""

    async def send(self, message: bytes) -> bool:
        """Send one message; returns when the owner's window took it. False: the call is over."""
        ...

    async def finish(self) -> None:
        """Nothing more is sent."""
        ...

    async def receive(self) -> bytes | End:
        """The next message, or how the call ended."""
        ...

    def cancel(self) -> None:
        """End the call now."""
        ...


class GrpcCall:
    """Over a peer's channel."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def send(self, message: bytes) -> bool:
        """See `OwnerCall.send`."""
        return await self._unless_over(self._call.write(message))

    async def finish(self) -> None:
        """See `OwnerCall.finish`."""
        await self._unless_over(self._call.done_writing())

    async def receive(self) -> bytes | End:
        """See `OwnerCall.receive`."""
        try:
            data = await self._call.read()
            if isinstance(data, bytes):
                return data
        except grpc.aio.AioRpcError:
            pass  # its status is read below
        except grpc.aio.UsageError as error:
            return End(UNAVAILABLE, str(error)[:200], said=False)
        except asyncio.CancelledError:
            # A call that is cancelled (its channel was closed) cancels whoever waits on it.
            if _is_cancelled():
                raise
            return End(UNAVAILABLE, "the connection to the owner was closed", said=False)
        return await self._end()

    async def _end(self) -> End:
        code: grpc.StatusCode = await self._call.code()
        details = await self._call.details() or ""
        trailing = dict(await self._call.trailing_metadata() or ())
        number: int = code.value[0]
        return End(number, details, said=SAID_KEY in trailing)

    def cancel(self) -> None:
        """See `OwnerCall.cancel`."""
        self._call.cancel()

    async def _unless_over(self, sending: Any) -> bool:
        try:
            await sending
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            return False
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            return False
        return True


def _is_cancelled() -> bool:
    """Whether it is this very task that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Calls:
    """Opens calls to peers."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def incarnation(self, owner: str) -> str | None:
        """The life of a peer that could be called; None if it is not known."""
        peer = self._peers.get(owner)
        return None if peer is None else peer.incarnation

    def open(self, owner: str, group: GroupKey) -> OwnerCall | None:
        """Begin a call; None if the peer is not known."""
        channel: Any = self._peers.channel(owner)
        if channel is None:
            return None
        metadata = (*self._peers.metadata, (GROUP_KEY, str(group)))
        return GrpcCall(channel.stream_stream(FORWARD_METHOD)(metadata=metadata))

"""gRPC calls between workers over the model network: a channel, its calls, and their other side.

As much of `grpc.aio` as workers use among themselves, with its errors.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import grpc
import grpc.aio

from tests.sim.loop import Process
from tests.sim.network import End, Ended, Network

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]  # missing in the stubs

FINISHED = object()
"""The caller will send no more."""

Metadata = Iterable[tuple[str, str]]


def status_of(ended: Ended) -> grpc.StatusCode:
    return getattr(grpc.StatusCode, ended.code)  # type: ignore[no-any-return]


def _error(ended: Ended) -> grpc.aio.AioRpcError:
    nothing: Any = grpc.aio.Metadata()
    trailing: Any = grpc.aio.Metadata(*ended.trailing)
    return grpc.aio.AioRpcError(status_of(ended), nothing, trailing, ended.details, "")


class SimCall:
    """The caller's side of a streaming call."""

    def __init__(self, network: Network, end: End) -> None:
        self._network = network
        self._end = end

    async def write(self, message: Any) -> None:
        if self._end.over is not None:
            raise asyncio.InvalidStateError("the call is over")
        self._network.send(self._end, message)

    async def done_writing(self) -> None:
        if self._end.over is None:
            self._network.send(self._end, FINISHED)

    async def read(self) -> Any:
        try:
            return await self._end.get()
        except Ended as ended:
            if ended.code == "OK":
                return EOF
            raise _error(ended) from None

    def done(self) -> bool:
        return self._end.over is not None

    def cancel(self) -> None:
        if self._end.over is None:
            self._network.close(self._end, Ended("CANCELLED"))

    async def _over(self) -> Ended:
        while self._end.over is None:
            await self._end.ended()
        return self._end.over

    async def code(self) -> grpc.StatusCode:
        return status_of(await self._over())

    async def details(self) -> str:
        return (await self._over()).details

    async def trailing_metadata(self) -> Metadata:
        return (await self._over()).trailing


class SimChannel:
    """A channel to one address; connects anew for each call."""

    def __init__(self, process: Process, host: str, network: Network, address: str) -> None:
        self._process = process
        self._host = host
        self._network = network
        self._address = address
        self._calls: list[SimCall] = []

    def _open(self, method: str, metadata: Metadata) -> SimCall:
        end = self._network.open(self._process, self._host, self._address, method, tuple(metadata))
        call = SimCall(self._network, end)
        self._calls = [each for each in self._calls if not each.done()]
        self._calls.append(call)
        return call

    def stream_stream(self, method: str) -> Any:
        return lambda metadata: self._open(method, metadata)

    def unary_unary(self, method: str) -> Any:
        async def ask(request: bytes, metadata: Metadata, timeout: float) -> bytes:
            call = self._open(method, metadata)
            await call.write(request)
            try:
                async with asyncio.timeout(timeout):
                    answer: bytes = await call.read()
            except TimeoutError:
                call.cancel()
                raise _error(Ended("DEADLINE_EXCEEDED")) from None
            call.cancel()
            return answer

        return ask

    async def close(self, grace: float | None) -> None:
        for call in self._calls:
            call.cancel()


class Aborted(Exception):
    """The handler has ended its call with a status."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class CallContext:
    """A call as its server sees it: `epp_worker.control.server.Context`, and what peers ask for."""

    def __init__(self, network: Network, end: End, metadata: Metadata = ()) -> None:
        self._network = network
        self._end = end
        self._metadata = tuple(metadata)
        self._finished = False
        self.status = Ended("OK")

    async def read(self) -> Any:
        if self._finished:
            return EOF
        try:
            item = await self._end.get()
        except Ended:
            raise asyncio.InvalidStateError("the call is over") from None
        if item is FINISHED:
            self._finished = True
            return EOF
        return item

    async def write(self, message: Any) -> None:
        if self._end.over is not None:
            raise asyncio.InvalidStateError("the call is over")
        self._network.send(self._end, message)

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        raise Aborted(code, details)

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = Ended(code.name, self.status.details, self.status.trailing)

    def set_details(self, details: str) -> None:
        self.status = Ended(self.status.code, details, self.status.trailing)

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        self.status = Ended(self.status.code, self.status.details, tuple(trailing_metadata))

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def peer(self) -> str:
        return self._end.peer

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return {}


async def serve_call(
    process: Process, network: Network, end: End, context: CallContext, work: Any
) -> None:
    """Run a handler's coroutine to its end, and send its status."""
    try:
        await work
    except Aborted as aborted:
        ended = Ended(aborted.code.name, aborted.details, context.status.trailing)
    except asyncio.CancelledError:
        ended = Ended("CANCELLED")
    except Exception as error:
        process.failed(f"a call's handler raised {error!r}")
        ended = Ended("UNKNOWN", repr(error))
    else:
        ended = context.status
    end.on_over = None
    if end.over is None:
        network.close(end, ended)

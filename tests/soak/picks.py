"""A gateway's side of ext_proc: one connection to a worker, many pools' streams on it."""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

import h2.exceptions

from epp_worker.process import PATH
from tests.http2_peer import Client, request_headers
from tests.unit import extproc_messages
from tests.worker_inprocess import endpoint_in

ANSWER_SECONDS = 10.0
_READ_BYTES = 65_536
_HEADERS = extproc_messages.request_headers()
_BODY = extproc_messages.request_body(b'{"model": "m"}', end_of_stream=True)


class NoPick(Exception):
    """The request was answered otherwise than by an endpoint; the message says how."""


class Connection:
    """One HTTP/2 connection to `host:port`.

    Attributes:
        lost: whether it is over.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = Client()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self.lost = False
        self._why = ""
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        reader, self._writer = await asyncio.open_connection(host, int(port))
        self._flush()
        self._reading = asyncio.create_task(self._read(reader))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._reading is not None
        assert self._writer is not None
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._reading
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def pick(self, authority: str) -> str:
        """The endpoint for one request to the pool behind this Service.

        Raises:
            NoPick: there was none.
        """
        if self.lost:
            raise NoPick(self._why)
        stream = self._client.open(request_headers(PATH, authority))
        self._client.send(stream, _HEADERS, _BODY, end=True)
        self._flush()
        answer = self._client.answers[stream]
        over = self._waiting[stream] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await over
        except TimeoutError:
            raise NoPick(f"{authority}: no answer in {ANSWER_SECONDS:g} s") from None
        finally:
            self._waiting.pop(stream, None)
            self._client.answers.pop(stream, None)
        if answer.status != 0:
            why = self._why or f"status {answer.status} {answer.headers} {answer.trailers}"
            raise NoPick(f"{authority}: {why}")
        try:
            return endpoint_in(answer.messages[0])
        except (KeyError, IndexError):
            raise NoPick(f"{authority}: answered without an endpoint") from None

    def _tell(self) -> None:
        for stream, over in self._waiting.items():
            answer = self._client.answers[stream]
            ended = answer.ended or answer.reset is not None or self.lost
            if ended and not over.done():
                over.set_result(None)

    def _flush(self) -> None:
        assert self._writer is not None
        self._writer.write(self._client.out())

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while data := await reader.read(_READ_BYTES):
                self._client.receive(data)
                self._flush()
                self._tell()
            self._why = f"{self.address} closed the connection {self._client.goaways}"
        except (OSError, h2.exceptions.ProtocolError) as error:
            self._why = f"{self.address}: {type(error).__name__}: {error}"
        self.lost = True
        self._tell()


class Gateway:
    """Connections to whichever workers slices name, kept."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}
        self._stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def pick(self, address: str, authority: str) -> str:
        """See `Connection.pick`; connects where there is no connection.

        Raises:
            NoPick: there was none.
        """
        async with self._opening:
            known = self._connections.get(address)
            if known is None or known.lost:
                try:
                    made = await self._stack.enter_async_context(Connection(address))
                except OSError as error:
                    raise NoPick(f"{address}: {error.strerror}") from None
                self._connections[address] = made
        return await self._connections[address].pick(authority)

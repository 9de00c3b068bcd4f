"""`GET /v1/models` of a model server: which models it serves, LoRA adapters included.

Asked only where several pools share a Service.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

import msgspec

from epp_worker.datalayer.http1 import BadResponse, ResponseReader

MAX_NAMES = 1000
MAX_NAME_LENGTH = 256
MAX_BYTES = 1024 * 1024
"""Of one answer: a thousand adapters take 200 kB."""

ANSWER_SECONDS = 2.0
_READ_BYTES = 16 * 1024


class NotTold(Exception):
    """The server does not say what it serves; the message says why."""


class ModelSource(Protocol):
    """Where models are asked for."""

    async def ask(self, address: str) -> frozenset[str]:
        """The models of the server at `ip:port`.

        Raises:
            NotTold: it does not say.
        """
        ...


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def names_of(body: bytes) -> frozenset[str]:
    """The models of an answer; those with impossible names, and those beyond `MAX_NAMES`, are left
    out.

    Raises:
        NotTold: it is no list of models.
    """
    try:
        listed = msgspec.json.decode(body, type=_Models).data
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NotTold(f"no list of models: {str(error)[:120]}") from None
    good = (each.id for each in listed if each.id and len(each.id) <= MAX_NAME_LENGTH)
    return frozenset(list(dict.fromkeys(good))[:MAX_NAMES])


class HttpModels:
    """Asks over HTTP; see `ModelSource`. A connection is used once: questions are seldom."""

    async def ask(self, address: str) -> frozenset[str]:
        """See `ModelSource.ask`."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return names_of(await _answer(address))
        except TimeoutError:
            raise NotTold(f"no answer within {ANSWER_SECONDS:g} s") from None
        except OSError as error:
            raise NotTold(f"connection failed: {error.strerror or error}") from None


async def _answer(address: str) -> bytes:
    """The body of the answer. Raises NotTold, OSError."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    answered: asyncio.Future[bytes] = loop.create_future()
    transport, _ = await loop.create_connection(
        lambda: _Asking(address, answered), host.strip("[]"), int(port)
    )
    try:
        return await answered
    finally:
        transport.abort()


class _Asking(asyncio.BufferedProtocol):
    """One question. The reader bounds what an answer is made of, not only its length: of a library
    endless answers of status 100, or chunks of a byte, took the loop for 50 ms at a time."""

    def __init__(self, address: str, answered: asyncio.Future[bytes]) -> None:
        self._address = address
        self._answered = answered
        self._pieces: list[bytes] = []
        self._reader = ResponseReader(self._pieces.append, limit=MAX_BYTES)
        self._buffer = bytearray(_READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        cast(asyncio.Transport, transport).write(
            f"GET /v1/models HTTP/1.1\r\nHost: {self._address}\r\nUser-Agent: epp-fleet\r\n"
            "Accept: application/json\r\nAccept-Encoding: identity\r\n"
            "Connection: close\r\n\r\n".encode()
        )

    def get_buffer(self, sizehint: int) -> bytearray:
        """See `asyncio.BufferedProtocol`."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if not self._answered.done():
            self._read(lambda: self._reader.feed(bytes(self._buffer[:nbytes])))

    def eof_received(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        if not self._answered.done():
            self._read(self._reader.eof)

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.BufferedProtocol`."""
        if not self._answered.done():
            self._answered.set_exception(NotTold("the connection broke"))

    def _read(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BadResponse as error:
            self._answered.set_exception(NotTold(str(error)))
            return
        if self._reader.done:
            self._answered.set_result(b"".join(self._pieces))

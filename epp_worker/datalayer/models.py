"""`GET /v1/models` of a model server: which models it serves, LoRA adapters included.

Asked only where several pools share a Service, so a client library is good enough here.
"""

from typing import Protocol

import aiohttp
import msgspec

MAX_NAMES = 1000
MAX_NAME_LENGTH = 256
MAX_BYTES = 1024 * 1024
"""Of one answer: a thousand adapters take 200 kB."""

ANSWER_SECONDS = 2.0


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

    async def close(self) -> None:
        """Give up what is open."""
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

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, address: str) -> frozenset[str]:
        """See `ModelSource.ask`."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS),
                connector=aiohttp.TCPConnector(force_close=True),
                auto_decompress=False,
            )
        try:
            async with self._session.get(
                f"http://{address}/v1/models", allow_redirects=False
            ) as response:
                if response.status != 200:
                    raise NotTold(f"status {response.status}")
                body = await response.content.read(MAX_BYTES + 1)
                while len(body) <= MAX_BYTES and not response.content.at_eof():
                    body += await response.content.read(MAX_BYTES + 1 - len(body))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotTold(str(error)[:120] or type(error).__name__) from None
        if len(body) > MAX_BYTES:
            raise NotTold(f"more than {MAX_BYTES} bytes")
        return names_of(body)

    async def close(self) -> None:
        """See `ModelSource.close`."""
        if self._session is not None:
            await self._session.close()

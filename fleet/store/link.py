"""Connections to one Redis or Valkey primary, for one purpose, that fail fast.

A lease client that hangs outlives its lease, so: every connect and every answer has a short
timeout, nothing is retried, and a call as a whole ends within twice that timeout.

A command that was sent is never cancelled while its connection goes on being used (the next caller
would get its answer, redis/redis-py#2624): each call is a task of its own. A caller that is
cancelled leaves it behind to finish; a call that passes its deadline loses its connection.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio.connection import (
    BlockingConnectionPool,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import NoScriptError, RedisError, ResponseError

from fleet.errors import FormatError, StoreUnavailable
from fleet.settings.store_url import StoreUrl
from fleet.store.faults import Fault, Faults, fault_of
from fleet.store.scripts import Script
from fleet.store.sentinel import PrimaryConnection, SecurePrimaryConnection, Sentinels

log = logging.getLogger(__name__)

Word = bytes | str | int
Reply = Any
"""What RESP2 can say: bytes, int, None, or a list of those."""

_DEADLINE_TIMEOUTS: Final = 2.0
_WAIT_SHARE: Final = 0.5
"""WAIT gives up before the socket does, so that too few acks are told from a dead server; a server
looks at such time-outs only every 0.1 s."""


_DEMOTED: Final = frozenset({Fault.READ_ONLY, Fault.REPLICAS})
"""What a server says that is no primary any more, or whose replicas have left it for another one
before it knows: whoever is primary now is found by connecting anew."""

_DIRECT: Final = {False: Connection, True: SSLConnection}
_PRIMARY: Final = {False: PrimaryConnection, True: SecurePrimaryConnection}


class Link:
    """A small pool of connections. Safe for concurrent use by the tasks of one event loop."""

    def __init__(
        self,
        url: StoreUrl,
        *,
        timeout_seconds: float,
        connections: int,
        faults: Faults,
        sentinels: Sentinels | None = None,
    ) -> None:
        """Args:
        timeout_seconds: for a connect, for an answer, and for a free connection, each.
        connections: at most so many; further callers wait.
        faults: where what goes wrong is counted and said.
        sentinels: asked at each connect where the primary is; None = it is where the URL says.
        """
        self._name = str(url)
        self._timeout = timeout_seconds
        self._pool = _pool(url, timeout_seconds, connections, sentinels)
        self._faults = faults
        self._calls: set[asyncio.Task[list[Reply]]] = set()
        self._closed = False

    async def command(self, name: str, key: str, *operands: Word) -> Reply:
        """Run one command on one key.

        Raises:
            StoreUnavailable: no answer, or one that proves nothing.
            FormatError: the key holds something of another type.
        """
        replies = await self._call([(name, key, *operands)])
        return self._checked(replies[0], f"{name} {key}")

    async def run(
        self, script: Script, keys: Sequence[str], args: Sequence[Word], *, acks: int = 0
    ) -> Reply:
        """Run a script, and then wait until `acks` replicas have what it wrote.

        Raises:
            StoreUnavailable: as for `command`; also when fewer replicas confirmed in time.
            FormatError: a value that the script had to read is unreadable.
        """
        operands: tuple[Word, ...] = (len(keys), *keys, *args)
        # WAIT speaks of the writes of its own connection: it goes out with the script.
        patience = int(self._timeout * _WAIT_SHARE * 1000)
        wait: list[Sequence[Word]] = [("WAIT", acks, patience)] if acks else []
        replies = await self._call([("EVALSHA", script.sha, *operands), *wait])
        if isinstance(replies[0], NoScriptError):  # restarted, failed over, or SCRIPT FLUSH
            replies = await self._call([("EVAL", script.source, *operands), *wait])
        reply = self._checked(replies[0], f"{script.name} on {_pattern(keys)}")
        confirmed = self._checked(replies[1], "WAIT") if acks else 0
        if confirmed < acks:
            await self._drop()
            raise self._unknown(
                Fault.REPLICAS, f"{script.name} confirmed by {confirmed} replicas, {acks} needed"
            )
        return reply

    async def close(self) -> None:
        """End all calls and connections; further calls raise StoreUnavailable."""
        self._closed = True
        for call in tuple(self._calls):
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._drop()

    async def _call(self, commands: Sequence[Sequence[Word]]) -> list[Reply]:
        """The replies in order; an error that the server replied is a value among them."""
        if self._closed:
            raise StoreUnavailable(f"{self._name}: this client is closed")
        call = asyncio.create_task(self._bounded(commands))
        self._calls.add(call)
        call.add_done_callback(self._finished)
        await asyncio.wait({call})  # cancelling this wait leaves the call alone
        if call.cancelled():
            raise StoreUnavailable(f"{self._name}: this client was closed")
        return call.result()

    def _finished(self, call: asyncio.Task[list[Reply]]) -> None:
        self._calls.discard(call)
        if not call.cancelled():
            call.exception()  # the caller may be gone: then the error is nobody's

    async def _bounded(self, commands: Sequence[Sequence[Word]]) -> list[Reply]:
        try:
            async with asyncio.timeout(_DEADLINE_TIMEOUTS * self._timeout):
                replies = await self._exchange(commands)
        except TimeoutError as error:
            raise self._unknown(Fault.TIMEOUT, "no answer in time") from error
        except (RedisError, OSError) as error:
            raise self._unknown(fault_of(error), _said(error)) from error
        if any(isinstance(r, ResponseError) and fault_of(r) in _DEMOTED for r in replies):
            await self._drop()
        return replies

    async def _exchange(self, commands: Sequence[Sequence[Word]]) -> list[Reply]:
        connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            await connection.send_packed_command(connection.pack_commands(commands))
            return [await _reply(connection) for _ in commands]
        finally:
            await self._pool.release(connection)

    async def _drop(self) -> None:
        with contextlib.suppress(RedisError, OSError):
            await self._pool.disconnect(inuse_connections=False)

    def _checked(self, reply: Reply, what: str) -> Reply:
        if not isinstance(reply, ResponseError):
            self._faults.answered()
            return reply
        text = str(reply)
        if text.startswith("FORMAT") or "WRONGTYPE" in text:
            self._faults.saw(Fault.FORMAT, text)
            raise FormatError(f"{self._name}: {text}") from reply
        raise self._unknown(fault_of(reply), f"{what}: {_said(reply)}") from reply

    def _unknown(self, fault: Fault, what: str) -> StoreUnavailable:
        self._faults.saw(fault, what)
        return StoreUnavailable(f"{self._name}: {what}")


def _said(error: Exception) -> str:
    """The kind goes in: the library takes the server's code (OOM, READONLY) off the text."""
    return f"{type(error).__name__}: {error}"


def _pattern(keys: Sequence[str]) -> str:
    """Keys for a message: the fleet's, and the names of the first few."""
    names = [key.rpartition(":")[2] if ":share:" not in key else "share:*" for key in keys]
    return f"{keys[0].rpartition(':')[0]}:[{' '.join(dict.fromkeys(names))}]"


async def _reply(connection: Connection) -> Reply:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error


def _pool(
    url: StoreUrl, timeout_seconds: float, connections: int, sentinels: Sentinels | None
) -> BlockingConnectionPool:
    options: dict[str, Any] = {
        "db": url.db,
        "username": url.username,
        "password": url.password,
        "socket_timeout": timeout_seconds,
        "socket_connect_timeout": timeout_seconds,
        # Without a Retry of its own a connection retries nothing; a client of redis-py 8 hands
        # down ten, which took 59 s to fail against a server that did not answer.
        "retry": None,
        "protocol": 2,
    }
    if url.secure:
        options |= {"ssl_check_hostname": True, **dict(url.tls)}
    if sentinels is not None:
        options |= {"connection_class": _PRIMARY[url.secure], "sentinels": sentinels}
    elif url.scheme == "unix":
        options |= {"connection_class": UnixDomainSocketConnection, "path": url.path}
    else:
        options |= {"connection_class": _DIRECT[url.secure], "host": url.host, "port": url.port}
    return BlockingConnectionPool(max_connections=connections, timeout=timeout_seconds, **options)

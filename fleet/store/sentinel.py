"""Asking Sentinels where the primary is.

All are asked at once and the newest configuration among the answers counts: a Sentinel that has not
heard of a fail-over goes on naming the old primary. Connections to Sentinels live for one
question, so none is left behind (redis/redis-py#3259), and are always made anew, so a retry asks
again (redis/redis-py#3874).
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Final

from redis.asyncio.connection import Connection, SSLConnection
from redis.exceptions import RedisError

from fleet.settings.store_url import Address, StoreUrl
from fleet.store.faults import PrimaryUnknown

_MAX_SAID: Final = 300
_MOMENT_SHARE: Final = 0.1
"""Of the time-out. Sentinels learn of a fail-over one after the other, up to 2 s apart, so the one
that has not answered yet may be the only one that knows."""

_Answer = tuple[int, Address]
"""A Sentinel's configuration epoch, and the primary in it."""


class Sentinels:
    """The Sentinels of one service. Safe for concurrent use by the tasks of one event loop."""

    def __init__(self, url: StoreUrl, *, timeout_seconds: float) -> None:
        """Args:
        timeout_seconds: for all answers together; whoever has not answered then is left out.
        """
        self._url = url
        self._timeout = timeout_seconds
        self._asking: asyncio.Task[Address] | None = None

    async def primary(self) -> Address:
        """Where the primary is now. Callers at the same time share one question.

        Raises:
            PrimaryUnknown: no Sentinel answered, or none knows the service.
        """
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all())
            self._asking.add_done_callback(self._asked)
        return await asyncio.shield(self._asking)

    async def close(self) -> None:
        """End a question that is under way, with its connections."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    def _asked(self, asking: asyncio.Task[Address]) -> None:
        self._asking = None
        if not asking.cancelled():
            asking.exception()  # whoever asked may be gone

    async def _ask_all(self) -> Address:
        asked = [asyncio.create_task(self._ask(each)) for each in self._url.sentinels]
        try:
            answers = await self._answers(asked)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        if answers:
            return max(answers)[1]
        said = [str(task.exception()) for task in asked if not task.cancelled()]
        silent = len(asked) - len(said)
        said += [f"{silent} silent"] if silent else []
        raise PrimaryUnknown(
            f"no Sentinel names a primary of {self._url.service!r}: {'; '.join(said)}"[:_MAX_SAID]
        )

    async def _answers(self, asked: Sequence[asyncio.Task[_Answer]]) -> list[_Answer]:
        """All of them, or those that came in time: who is silent is waited for a while, but only a
        moment once a majority has answered."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self._timeout
        waiting = set(asked)
        answers: list[_Answer] = []
        while waiting and clock() < deadline:
            done, waiting = await asyncio.wait(
                waiting, timeout=deadline - clock(), return_when=asyncio.FIRST_COMPLETED
            )
            answers += [task.result() for task in done if task.exception() is None]
            if 2 * len(answers) > len(asked):
                deadline = min(deadline, clock() + _MOMENT_SHARE * self._timeout)
        return answers

    async def _ask(self, sentinel: Address) -> _Answer:
        """Its configuration's epoch and the primary's address."""
        connection = self._connection(sentinel)
        try:
            await connection.connect_check_health()
            await connection.send_command("SENTINEL", "MASTER", self._url.service)
            reply = await connection.read_response()
            facts = dict(zip(reply[::2], reply[1::2], strict=True))
            address = Address(facts[b"ip"].decode(), int(facts[b"port"]))
            return int(facts[b"config-epoch"]), address
        except (RedisError, OSError, TypeError, ValueError, LookupError) as error:
            raise PrimaryUnknown(f"{sentinel}: {error}") from error
        finally:
            with contextlib.suppress(RedisError, OSError):
                await connection.disconnect(nowait=True)

    def _connection(self, sentinel: Address) -> Connection:
        options: dict[str, Any] = {
            "host": sentinel.host,
            "port": sentinel.port,
            "username": self._url.sentinel_username,
            "password": self._url.sentinel_password,
            "socket_timeout": self._timeout,
            "socket_connect_timeout": self._timeout,
            "protocol": 2,
        }
        if not self._url.secure:
            return Connection(**options)
        options |= {"ssl_check_hostname": True, **dict(self._url.tls)}
        return SSLConnection(**options)


class PrimaryConnection(Connection):
    """A connection to whatever is the primary when it connects."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        self._sentinels = sentinels
        super().__init__(**options)

    async def connect_check_health(
        self, check_health: bool = True, retry_socket_connect: bool = True
    ) -> None:
        """Ask, connect, and make sure: a demoted primary may still be named for a moment.

        Raises:
            PrimaryUnknown: nobody is known, or what is named is a replica.
        """
        if self.is_connected:
            return
        self.host, self.port = await self._sentinels.primary()
        await super().connect_check_health(check_health, retry_socket_connect)
        await self.send_command("ROLE", check_health=False)
        role = (await self.read_response())[0]
        if role != b"master":
            await self.disconnect()
            named = Address(self.host, self.port)
            raise PrimaryUnknown(f"{named}, named by the Sentinels, is a {role.decode()}")


class SecurePrimaryConnection(PrimaryConnection, SSLConnection):
    """The same by TLS."""

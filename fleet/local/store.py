"""The local fleet's store: the bundled Valkey, or somebody else's Redis that must answer."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis.asyncio
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from fleet.errors import FleetError, SettingsError
from fleet.local import processes
from fleet.local.children import Child, ChildFailed, Children, Spec, failure
from fleet.local.plan import LOOPBACK, RunFolder
from fleet.local.world import Say
from fleet.settings.limits import masked_url
from fleet.settings.store_url import parse_store_url
from fleet.store.sentinel import Sentinels

START_SECONDS = 10.0
LOOK_SECONDS = 0.02
PORT_TRIES = 3
AGAIN_SECONDS = 0.5
TELL_SECONDS = 3.0
ANSWER_SECONDS = 1.0


class NoAnswer(FleetError):
    """The server is not there, or not yet ready; the message says which."""


async def ping(url: str) -> None:
    """Return if the server at `url` answers.

    Raises:
        NoAnswer: it does not, but may do so later.
        SettingsError: it answers, but not to us: wrong password, no such database.
    """
    client: redis.asyncio.Redis | None = None
    try:
        client = await _client(url)
        try:
            await client.ping()
        except NoPermissionError:
            # A user of least privilege (docs/redis.md) may not; what it may, it is asked instead.
            await client.time()
    except (AuthenticationError, AuthorizationError, ResponseError) as error:
        raise SettingsError([f"redis.url: the server refuses us: {error}"]) from error
    except (RedisError, OSError, TimeoutError) as error:
        raise NoAnswer(_why(error)) from error
    finally:
        if client is not None:
            await client.aclose()


async def _client(url: str) -> redis.asyncio.Redis:
    """A client of the server, or of the primary that Sentinels name."""
    patience: dict[str, Any] = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
        "retry": None,
    }
    place = parse_store_url(url)
    if not place.sentinels:
        return redis.asyncio.from_url(url, **patience)
    host, port = await Sentinels(place, timeout_seconds=ANSWER_SECONDS).primary()
    return redis.asyncio.Redis(
        host=host,
        port=port,
        db=place.db,
        username=place.username,
        password=place.password,
        ssl=place.secure,
        **(patience | dict(place.tls)),
    )


def _why(error: BaseException) -> str:
    """The cause in the system's own words, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError | redis.exceptions.TimeoutError):
            return f"no answer within {ANSWER_SECONDS:.0f} s"
        if isinstance(cause, OSError) and cause.errno is not None:
            # Resolvers have (negative) numbers and words of their own.
            words = os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
            return words.lower()
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


class LocalStore:
    """The store of one fleet.

    Args:
        binary: of the bundled server; None = `url` names a running one.

    Attributes:
        url: where it is; known once `start` has returned.
    """

    def __init__(self, binary: Path | None, url: str, say: Say) -> None:
        self._binary = binary
        self._say = say
        self._spec: Spec | None = None
        self.url = url

    async def start(self, children: Children, folder: RunFolder, take: Callable[[], int]) -> None:
        """Start the bundled server, or wait until the other one answers, however long it takes.

        Raises:
            ChildFailed: the bundled one does not answer; carries its log.
            SettingsError: the other one answers, but refuses us.
        """
        if self._binary is None:
            await self._wait()
            return
        for _ in range(PORT_TRIES):
            port = take()
            self._spec = processes.valkey(self._binary, port, folder)
            self.url = f"redis://{LOOPBACK}:{port}/0"
            child = await children.start(self._spec)
            if await self._answers(child):
                return
            if not processes.says_port_taken(child):
                break
        raise ChildFailed(failure(child))

    async def _wait(self) -> None:
        began = time.monotonic()
        told: float | None = None
        while True:
            try:
                return await ping(self.url)
            except NoAnswer as error:
                now = time.monotonic()
                if told is None or now - told >= TELL_SECONDS:
                    told = now
                    self._say(
                        f"waiting for the store at {masked_url(self.url)}: {error} "
                        f"({now - began:.0f} s)"
                    )
            await asyncio.sleep(AGAIN_SECONDS)

    async def restart_empty(self, children: Children) -> None:
        """Kill the bundled server and start it again, with nothing stored, on the same port.

        Raises:
            FleetError: it is not ours.
            ChildFailed: it does not come back.
        """
        if self._spec is None:
            raise FleetError("the store is not ours to restart")
        await children.kill(children.get(self._spec.name))
        child = await children.start(self._spec)
        if not await self._answers(child):
            raise ChildFailed(failure(child))

    async def _answers(self, child: Child) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while child.alive and time.monotonic() < deadline:
            try:
                await ping(self.url)
            except (NoAnswer, SettingsError):
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return True
        return False

"""The local fleet's store: the bundled Valkey, or somebody else's Redis that must answer."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import redis.asyncio
from redis.exceptions import RedisError

from fleet.errors import FleetError, SettingsError
from fleet.local import processes
from fleet.local.children import Child, ChildFailed, Children, Spec, failure
from fleet.local.plan import LOOPBACK, RunFolder

START_SECONDS = 10.0
LOOK_SECONDS = 0.02
PORT_TRIES = 3


async def ping(url: str) -> None:
    """Return if the server at `url` answers.

    Raises:
        SettingsError: it does not; says why.
    """
    client = redis.asyncio.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0, retry=None)
    try:
        await client.ping()
    except (RedisError, OSError, TimeoutError) as error:
        raise SettingsError([f"redis.url: no answer from the server: {error}"]) from error
    finally:
        await client.aclose()


class LocalStore:
    """The store of one fleet.

    Args:
        binary: of the bundled server; None = `url` names a running one.

    Attributes:
        url: where it is; known once `start` has returned.
    """

    def __init__(self, binary: Path | None, url: str) -> None:
        self._binary = binary
        self._spec: Spec | None = None
        self.url = url

    async def start(self, children: Children, folder: RunFolder, take: Callable[[], int]) -> None:
        """Start the bundled server, or look whether the other one answers.

        Raises:
            ChildFailed: the bundled one does not answer; carries its log.
            SettingsError: the other one does not.
        """
        if self._binary is None:
            await ping(self.url)
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
            except SettingsError:
                await asyncio.sleep(LOOK_SECONDS)
            else:
                return True
        return False

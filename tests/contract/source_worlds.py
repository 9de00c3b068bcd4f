"""Worlds that sources look at, as the source suite handles them: put, delete, take away."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from fleet.sources.contract import Source
from fleet.sources.folder import FolderSource
from tests.contract.kube_worlds import FakeApiWorld
from tests.fake_api_server import FakeApiServer
from tests.kube_sources import running_source
from tests.stepped_clock import SteppedClock

Raw = dict[str, Any]


class World(Protocol):
    """What stands behind a source, and the source over it (not started)."""

    source: Source
    validates: bool
    """It refuses malformed objects itself, so no source ever sees one."""

    async def put(self, raw: Raw) -> None:
        """Create or replace an object."""
        ...

    async def delete(self, raw: Raw) -> None:
        """Remove an object."""
        ...

    async def take_away(self) -> None:
        """From now on the source cannot read."""
        ...

    async def give_back(self) -> None:
        """The source can read again what it could before."""
        ...

    async def settle(self) -> None:
        """Give the source the time it needs to notice everything."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let the source's clock go on."""
        ...


class FolderWorld:
    """A folder of manifests, one file an object."""

    POLL_SECONDS = 0.2
    validates = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hidden = folder.with_name("hidden")
        folder.mkdir()
        self._clock = SteppedClock()
        self.source: Source = FolderSource(
            folder, poll_seconds=self.POLL_SECONDS, clock=self._clock
        )

    def path(self, raw: Raw) -> Path:
        """The file of one object."""
        namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
        api = raw["apiVersion"].replace("/", "_")
        return self._folder / f"{raw['kind']}.{namespace}.{name}.{api}.json"

    async def put(self, raw: Raw) -> None:
        self.path(raw).write_text(json.dumps(raw))

    async def delete(self, raw: Raw) -> None:
        self.path(raw).unlink()

    async def take_away(self) -> None:
        self._folder.rename(self._hidden)

    async def give_back(self) -> None:
        self._hidden.rename(self._folder)

    async def settle(self) -> None:
        for _ in range(3):
            await self._clock.step(self.POLL_SECONDS)

    async def pass_time(self, seconds: float) -> None:
        await self._clock.step(seconds)


@asynccontextmanager
async def folder_world(tmp_path: Path) -> AsyncIterator[World]:
    """A world over a new folder; its source is closed at the end."""
    world = FolderWorld(tmp_path / "manifests")
    try:
        yield world
    finally:
        await world.source.close()


@asynccontextmanager
async def fake_api_world(tmp_path: Path) -> AsyncIterator[World]:
    """A world over a fake API server; nothing is kept of a cut connection."""
    async with FakeApiServer.running() as server, running_source(server.kubeconfig(tmp_path)) as on:
        yield FakeApiWorld(server, on)


WORLDS: dict[str, Callable[[Path], AbstractAsyncContextManager[World]]] = {
    "folder": folder_world,
    "fake API server": fake_api_world,
}

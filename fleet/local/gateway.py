"""The local gateway: Envoy's process and its files, kept in step with the pools."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path

from fleet.local.atomic import write_atomic
from fleet.local.children import Spec
from fleet.local.envoy_admin import AdminUnavailable
from fleet.local.envoy_config import bootstrap
from fleet.local.envoy_files import EnvoyFiles
from fleet.model import Pod, Pool, PoolRef

log = logging.getLogger(__name__)

POLL_SECONDS = 0.1
IDLE_SECONDS = 1.0
RoutesVersion = Callable[[], Awaitable[str]]
Snapshot = Callable[[], tuple[Iterable[Pool], Collection[Pod]]]


def envoy_spec(binary: Path, files: EnvoyFiles, *, gateway_port: int, admin_port: int) -> Spec:
    """Write the bootstrap file; the command that runs Envoy with it."""
    value = bootstrap(
        gateway_port=gateway_port,
        admin_port=admin_port,
        clusters_file=files.folders.clusters,
        routes_file=files.folders.routes,
    )
    write_atomic(files.folders.bootstrap, json.dumps(value, indent=1))
    command = (
        *(str(binary), "--config-path", str(files.folders.bootstrap)),
        # With hot restart Envoy ends with the thread that started it, and needs ids of its own.
        *("--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"),
    )
    return Spec("envoy", "gateway", command)


class GatewayFollower:
    """Writes Envoy's files whenever pools, pods or the leader's files have changed.

    Args:
        routes_version: version of the routes that Envoy uses, or raises AdminUnavailable.
        snapshot: the pools and pods as of now.
    """

    def __init__(
        self, files: EnvoyFiles, routes_version: RoutesVersion, snapshot: Snapshot
    ) -> None:
        self._files = files
        self._routes_version = routes_version
        self._snapshot = snapshot
        self._poke = asyncio.Event()
        self._missing: tuple[PoolRef, ...] | None = None

    def poke(self) -> None:
        """Something has changed."""
        self._poke.set()

    async def routed(self) -> bool:
        """Whether every pool has a route, and Envoy uses it.

        Raises:
            AdminUnavailable: Envoy could not be asked.
        """
        if self._missing is None or self._missing:
            return False
        return await self._routes_version() == self._files.routes_version

    async def run(self) -> None:
        """Follow until cancelled. A file that cannot be written is reported and tried again."""
        while True:
            self._poke.clear()
            try:
                pools, pods = self._snapshot()
                self._missing = await self._files.sync(pools, pods)
            except AdminUnavailable as error:
                self._missing = None
                log.debug("gateway not readable", extra={"error": str(error)})
            except OSError as error:
                self._missing = None
                log.error("gateway files not written", extra={"error": str(error)})
            pause = IDLE_SECONDS if self._missing == () else POLL_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._poke.wait()
            except TimeoutError:
                continue

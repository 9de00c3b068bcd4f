"""Where peers may be found while no leader says so: `worker.peers`, and the store's members."""

import asyncio
import logging
import socket
from pathlib import Path

from fleet.errors import FleetError
from fleet.model.identity import host_port
from fleet.settings.peers import DNS, FILE, split_peers
from fleet.store.contract import Store

log = logging.getLogger(__name__)

MAX_SEEDS = 256
"""Addresses that are asked at most."""
LOOK_UP_SECONDS = 2.0


class Seeds:
    """Looks for addresses of peers' internal ports; each `host:port`.

    Args:
        peers: the setting `worker.peers`.
    """

    def __init__(self, peers: str, store: Store) -> None:
        self._peers = peers
        self._store = store

    async def find(self) -> tuple[str, ...]:
        """All that can be found now, in no order. What cannot be read is no address."""
        found = dict.fromkeys(await self._members())
        for kind, value in split_peers(self._peers):
            if kind == DNS:
                found.update(dict.fromkeys(await _resolve(value)))
            elif kind == FILE:
                found.update(dict.fromkeys(await asyncio.to_thread(_read, Path(value))))
            else:
                found[value] = None
        return tuple(found)[:MAX_SEEDS]

    async def _members(self) -> list[str]:
        try:
            beats = await self._store.members()
        except FleetError:
            return []
        addresses = (beat.member.addresses.internal for beat in beats)
        return [address for address in addresses if address]


async def _resolve(value: str) -> list[str]:
    """Every address behind a name, as of now."""
    host, _, port = value.rpartition(":")
    host = host.strip("[]")
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, TimeoutError) as error:
        log.info("peers not found by name", extra={"host": host, "error": type(error).__name__})
        return []
    return [host_port(str(address[0]), int(port)) for *_, address in found]


def _read(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        log.info("file of peers not read", extra={"file": str(path), "error": str(error)})
        return []
    return [line.strip() for line in lines if line.strip()]

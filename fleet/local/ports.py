"""Free ports for a fleet, without collisions between fleets that start at the same time.

Ports are taken from below the ephemeral range, in blocks. The first port of a block is bound and
kept for the fleet's life: whoever finds it bound takes another block. Inside the block each port is
probed, for programs that are no fleets.
"""

import random
import socket
from pathlib import Path
from types import TracebackType

from fleet.errors import FleetError

BLOCK = 64
LOWEST = 10_240
EPHEMERAL_DEFAULT = 32_768
EPHEMERAL_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortTaken(FleetError):
    """A port that was asked for, or every port that was tried, is in use."""


def first_ephemeral(source: Path = EPHEMERAL_FILE) -> int:
    """Where the kernel's own choice of ports begins."""
    try:
        lowest = int(source.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return EPHEMERAL_DEFAULT
    return lowest if lowest >= LOWEST + 2 * BLOCK else EPHEMERAL_DEFAULT


def is_free(host: str, port: int) -> bool:
    """Whether `host:port` can be bound for listening now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


class Ports:
    """A fleet's ports; hold it open as long as the fleet lives.

    Args:
        chance: picks the blocks; handed in so that a test can repeat a choice.
    """

    def __init__(self, chance: random.Random, host: str = "127.0.0.1") -> None:
        self._chance = chance
        self._host = host
        self._guards: list[socket.socket] = []
        self._left: list[int] = []
        self._end = first_ephemeral()

    def take(self, *, also_on: tuple[str, ...] = ()) -> int:
        """A port that is free on our host and on every address of `also_on`.

        Raises:
            PortTaken: nothing free was found.
        """
        for _ in range(64 * BLOCK):
            if not self._left:
                self._open_block()
            port = self._left.pop()
            if all(is_free(host, port) for host in (self._host, *also_on)):
                return port
        raise PortTaken("no free port was found below the ephemeral range")

    def _open_block(self) -> None:
        blocks = range(LOWEST, self._end - BLOCK, BLOCK)
        for _ in range(512):
            base = self._chance.choice(blocks)
            guard = socket.socket()
            try:
                guard.bind((self._host, base))
                guard.listen(1)
            except OSError:
                guard.close()
                continue
            self._guards.append(guard)
            self._left = list(range(base + BLOCK - 1, base, -1))
            return
        raise PortTaken("no block of free ports was found below the ephemeral range")

    def close(self) -> None:
        """Give the blocks back."""
        for guard in self._guards:
            guard.close()
        self._guards.clear()
        self._left.clear()

    def __enter__(self) -> "Ports":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

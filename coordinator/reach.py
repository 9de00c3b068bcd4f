"""How a coordinator reaches workers and the leader: the seam between its loops and the network.

Real: gRPC and plain TCP (`coordinator.grpc_reach`). Modelled: the simulation of a whole fleet.
"""

from typing import Protocol

from coordinator.verdicts import Connect
from fleet.control.messages import Down, MapUpdate, Unknown, Up
from fleet.errors import FleetError
from fleet.model import Addresses, LeaderInfo, Member


class StreamEnded(FleetError):
    """A stream is over, or could not be opened; the message says why.

    Attributes:
        code: gRPC's name of the status it ended with.
        seen_epoch: the epoch that a worker refused us for, where it says so.
    """

    def __init__(self, code: str, details: str = "", *, seen_epoch: int | None = None) -> None:
        super().__init__(details or code)
        self.code = code
        self.seen_epoch = seen_epoch

    @property
    def unreached(self) -> bool:
        """Whether the network, not the peer, ended it."""
        return self.code == "UNAVAILABLE"


class ControlStream(Protocol):
    """One control stream to one worker; opened by the first use.

    Everything but `close` raises StreamEnded once it is over, unless the worker ended it in good
    order.
    """

    async def send(self, message: Down) -> None:
        """Write a message; returns once it is on its way."""
        ...

    async def receive(self) -> Up | Unknown | None:
        """The next message; None once the worker ended the stream in good order.

        Raises:
            FormatError: unreadable.
        """
        ...

    async def finish(self) -> None:
        """Say that no more will be sent."""
        ...

    async def close(self) -> None:
        """End it, whatever its state."""
        ...


class WorkerReach(Protocol):
    """The ways in which a leader reaches workers."""

    def control(self, contact: Member) -> ControlStream:
        """A control stream to the worker's internal port; does not wait for it."""
        ...

    async def worker_fault(self, contact: Member) -> str | None:
        """What is wrong with the certificates between us and a worker that was not reached."""
        ...

    async def connects(self, addresses: Addresses) -> tuple[Connect, Connect]:
        """One attempt at the ext_proc and at the health port, at the same time."""
        ...

    async def answers(self, addresses: Addresses) -> bool:
        """Whether the health port answers a check, with whatever status."""
        ...


class MapStream(Protocol):
    """A leader's map stream; opened by the first use."""

    async def receive(self) -> MapUpdate | None:
        """The next update; None once the leader ended the stream in good order.

        Raises:
            StreamEnded: it is over.
            FormatError: unreadable.
        """
        ...

    async def close(self) -> None:
        """End it, whatever its state."""
        ...


class LeaderReach(Protocol):
    """The ways in which a follower reaches the leader."""

    def map_stream(self, leader: LeaderInfo) -> MapStream:
        """The leader's map stream; does not wait for it."""
        ...

    async def leader_fault(self, leader: LeaderInfo) -> str | None:
        """What is wrong with the certificates between us and a leader that was not reached."""
        ...


class Reach(WorkerReach, LeaderReach, Protocol):
    """Both."""

"""The other workers: where their internal ports are, and one channel to each.

Told by the leader; what it told last stays true while nobody leads. A channel is made on first use
and shared by everything that talks to that peer; a peer that goes, or comes back as another
incarnation or at another address, has its channel closed, which ends the calls on it.
"""

import asyncio
from collections.abc import Callable, Mapping

import grpc.aio

from fleet.certificates import Bundle, Certificates, Role
from fleet.control.messages import WorkerPeer
from fleet.control.transport import dial

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.keepalive_time_ms", 5_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


RENEWED_SECONDS = 600.0
"""How long calls may go on whose channel was made with a certificate that is replaced."""


class Peers:
    """Every living worker but this one, by id.

    Args:
        closing: has a channel closed soon, its calls after so many seconds; must not block.
        max_message_bytes: of one message, either way.
        certificates: of the internal port; None = it speaks plaintext.
    """

    def __init__(
        self,
        worker: str,
        token: str,
        certificates: Certificates | None,
        closing: Callable[[grpc.aio.Channel, float | None], None],
        max_message_bytes: int,
    ) -> None:
        self._options = [
            *CHANNEL_OPTIONS,
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", max_message_bytes),
        ]
        self._worker = worker
        self._certificates = certificates
        self._closing = closing
        self._known: dict[str, WorkerPeer] = {}
        self._channels: dict[str, tuple[grpc.aio.Channel, Bundle | None]] = {}
        self._changed: list[Callable[[], None]] = []
        self.metadata = (("authorization", f"Bearer {token}"),)
        """What every call to a peer carries."""

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop whenever peers come, go or move."""
        self._changed.append(listener)

    def introduce(self, peers: Mapping[str, WorkerPeer]) -> None:
        """The whole list as it is now; this worker itself is left out."""
        known = {worker: peer for worker, peer in peers.items() if worker != self._worker}
        if known == self._known:
            return
        for worker, peer in self._known.items():
            if known.get(worker) != peer:
                self._drop(worker)
        self._known = known
        for listener in self._changed:
            listener()

    def get(self, worker: str | None) -> WorkerPeer | None:
        """The peer, if it is known."""
        return None if worker is None else self._known.get(worker)

    def all(self) -> Mapping[str, WorkerPeer]:
        """Every known peer."""
        return self._known

    def channel(self, worker: str) -> grpc.aio.Channel | None:
        """The channel to a peer; None if it is not known. Never to be closed by the caller.

        It reconnects by itself, with the certificate that it was made with: when that is replaced,
        new calls get a new channel, and the old one goes when its calls have ended.
        """
        peer = self._known.get(worker)
        if peer is None:
            return None
        bundle = None if self._certificates is None else self._certificates.bundle()
        made = self._channels.get(worker)
        if made is not None and made[1] is not bundle:
            self._closing(made[0], RENEWED_SECONDS)
            made = None
        if made is None:
            made = self._channels[worker] = (self.dial(peer.internal), bundle)
        return made[0]

    def dial(self, address: str) -> grpc.aio.Channel:
        """A channel of its own to a worker's internal port, to be closed by the caller."""
        return dial(address, self._certificates, Role.WORKER, self._options)

    def _drop(self, worker: str) -> None:
        made = self._channels.pop(worker, None)
        if made is not None:
            self._closing(made[0], None)

    async def close(self) -> None:
        """Close every channel."""
        made, self._channels = list(self._channels.values()), {}
        self._known = {}
        await asyncio.gather(*(channel.close(None) for channel, _ in made))

"""Channels to other workers: one each, as long as the peer and our certificate are the same."""

from pathlib import Path
from typing import Any, cast

import grpc.aio

from epp_worker.peers import RENEWED_SECONDS, Peers
from fleet.certificates import Certificates, Role
from fleet.control.messages import WorkerPeer
from tests.tls_files import certificates, new_ca, write_set

W1 = WorkerPeer("127.0.0.1:9", "i1")


class Channels:
    """Notes how channels are closed."""

    def __init__(self, own: Certificates | None = None) -> None:
        self.closed: list[tuple[object, float | None]] = []
        self.peers = Peers("w0", "token", own, self._close, 1024)

    def _close(self, channel: grpc.aio.Channel, grace: float | None) -> None:
        self.closed.append((channel, grace))

    def get(self, worker: str) -> Any:
        return cast(Any, self.peers.channel(worker))


async def test_each_peer_has_one_channel_and_we_have_none_to_ourselves() -> None:
    """Whoever is not known has none."""
    made = Channels()
    made.peers.introduce({"w0": WorkerPeer("127.0.0.1:8", "i0"), "w1": W1})
    assert made.get("w1") is made.get("w1") is not None
    assert (made.get("w0"), made.get("w2")) == (None, None)
    assert set(made.peers.all()) == {"w1"}
    assert made.peers.metadata == (("authorization", "Bearer token"),)
    await made.peers.close()


async def test_another_life_or_address_is_another_channel() -> None:
    """The old one is closed at once, with its calls; whoever listens hears of it once."""
    made = Channels()
    heard: list[int] = []
    made.peers.on_change(lambda: heard.append(len(made.peers.all())))
    made.peers.introduce({"w1": W1, "w2": W1})
    first, other = made.get("w1"), made.get("w2")
    made.peers.introduce({"w1": W1, "w2": W1})
    assert (made.get("w1"), heard, made.closed) == (first, [2], [])
    made.peers.introduce({"w1": WorkerPeer(W1.internal, "i2"), "w2": W1})
    assert made.closed == [(first, None)]
    assert made.get("w1") is not first
    made.peers.introduce({})
    assert (other, None) in made.closed
    assert (len(made.closed), heard) == (3, [2, 2, 0])
    await made.peers.close()


async def test_a_new_certificate_is_for_new_calls(tmp_path: Path) -> None:
    """Those that run go on over the old channel, for a while."""
    ca = new_ca()
    made = Channels(certificates(tmp_path, ca, Role.WORKER))
    made.peers.introduce({"w1": W1})
    first = made.get("w1")
    assert made.get("w1") is first
    write_set(tmp_path, ca, Role.WORKER)
    second = made.get("w1")
    assert second is not first
    assert made.closed == [(first, RENEWED_SECONDS)]
    assert made.get("w1") is second
    await made.peers.close()

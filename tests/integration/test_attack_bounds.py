"""Every bound of the gateways' port, attacked on real sockets beside a gateway of another pool: the
bound is hit and counted, the bystander's picks all succeed, and all is given back."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from epp_worker.http2 import frames
from epp_worker.http2.errors import ErrorCode
from tests.attack_scene import BOUNDS, KIB, A, Scene, attacked_worker
from tests.attackers import HELLO, Attacker, data, headers, literals
from tests.http2_peer import grpc, raw
from tests.unit import extproc_messages as make
from tests.worker_inprocess import until

CALM = ErrorCode.ENHANCE_YOUR_CALM
NO_WINDOW = frames.PREFACE + frames.settings({4: 0}) + frames.SETTINGS_ACK
OPEN = (make.request_headers(), make.request_body(b'{"model": "m", "x": "'))
BOMB = b"\x40\x01x\x7f\xa1\x1e" + b"a" * 4_000 + b"\xbe" * 4


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A worker with small bounds."""
    async with attacked_worker(tmp_path) as scene:
        yield scene


def ids(count: int) -> Iterable[int]:
    """Of streams."""
    return range(1, 2 * count, 2)


def update(stream_id: int, increment: int) -> bytes:
    """WINDOW_UPDATE."""
    return raw(frames.WINDOW_UPDATE, 0, stream_id, frames.pack_u32(increment))


def whole(stream_id: int, body: bytes) -> bytes:
    """A request with its body."""
    body = make.request_body(body, end_of_stream=True)
    return headers(stream_id, A) + data(stream_id, grpc(make.request_headers(), body))


def half(stream_id: int, size: int) -> bytes:
    """A request whose body goes on."""
    more = grpc(*OPEN, make.request_body(b"a" * size))
    return headers(stream_id, A) + data(stream_id, more)


FLOODS = {
    "PING": (frames.ping(b"12345678") * 2_000, "idle_frames"),
    "SETTINGS": (frames.settings({}) * 2_000, "idle_frames"),
    "PRIORITY": (raw(frames.PRIORITY, 0, 1, b"\0\0\0\3\1") * 2_000, "idle_frames"),
    "WINDOW_UPDATE": (update(0, 1) * 2_000, "idle_frames"),
    "empty DATA": (headers(1, A) + raw(frames.DATA, 0, 1) * 2_000, "idle_frames"),
    "rapid reset": (
        b"".join(headers(one, A) + frames.rst_stream(one, 8) for one in ids(600)),
        "unanswered_resets",
    ),
    "forced reset": (
        b"".join(headers(one, A) + update(one, 0) for one in ids(600)),
        "unanswered_resets",
    ),
    "HPACK bomb": (raw(frames.HEADERS, frames.FLAG_END_HEADERS, 1, BOMB), "header_list"),
    "endless names": (
        raw(frames.HEADERS, 0, 1, literals([(f"n{n}", "") for n in range(1_000)]))
        + raw(frames.CONTINUATION, 0, 1, literals([(f"m{n}", "") for n in range(2_000)])[:16_000]),
        "header_block",
    ),
    "CONTINUATION": (
        raw(frames.HEADERS, 0, 1) + raw(frames.CONTINUATION, 0, 1) * 100,
        "header_block",
    ),
}
"""What is sent in one go -> the bound that ends the connection."""


@pytest.mark.parametrize("name", FLOODS)
async def test_floods_of_frames(scene: Scene, name: str) -> None:
    """Five connections in a row are told to calm down (RFC 9113, 10.5), and closed."""
    sent, bound = FLOODS[name]

    async def attack() -> None:
        for number in range(1, 6):
            attacker = await scene.attacker()
            await attacker.send(HELLO + sent)
            async with asyncio.timeout(20):
                assert await attacker.goaway() in (CALM, None)  # None: cut off while it was sending
            attacker.close()
            assert scene.hits(bound) == number

    await scene.during(name, attack())
    await scene.nothing_is_held()


async def streams_of_a_connection(scene: Scene) -> Attacker:
    """100 more than it may have."""
    attacker = await scene.attacker()
    await attacker.send(HELLO + b"".join(headers(one, A) for one in ids(300)))
    return attacker


async def streams_of_the_worker(scene: Scene) -> list[Attacker]:
    """Three connections with all they can get."""
    return [await streams_of_a_connection(scene) for _ in range(3)]


async def zero_window(scene: Scene) -> Attacker:
    """Asks for 65 kB back on each of two streams, and opens no window for it."""
    attacker = await scene.attacker()
    body = b'{"model": "m", "x": "' + b"a" * 65_400 + b'"}'
    await attacker.send(NO_WINDOW + b"".join(whole(one, body) for one in ids(2)))
    return attacker


async def zero_windows(scene: Scene) -> Attacker:
    """The same with many streams of 20 kB."""
    attacker = await scene.attacker()
    body = b'{"model": "m", "x": "' + b"a" * 20_000 + b'"}'
    await attacker.send(NO_WINDOW + b"".join(whole(one, body) for one in ids(20)))
    return attacker


async def slow_readers(scene: Scene) -> list[Attacker]:
    """Six connections that hold 200 kB of answers each, one less than would end one alone."""
    attackers = []
    for _ in range(6):
        attacker = await scene.attacker()
        body = b'{"model": "m", "x": "' + b"a" * 20_000 + b'"}'
        await attacker.send(NO_WINDOW + b"".join(whole(one, body) for one in ids(10)))
        attackers.append(attacker)
    return attackers


async def half_messages(scene: Scene) -> Attacker:
    """Messages of 64 KiB that are announced, and never whole."""
    attacker = await scene.attacker()
    part = b"\0" + (64 * KIB).to_bytes(4, "big") + b"a" * 40 * KIB
    await attacker.send(HELLO + b"".join(headers(one, A) + data(one, part) for one in ids(20)))
    return attacker


async def huge_message(scene: Scene) -> Attacker:
    """A message of 2 GiB, in its own words."""
    attacker = await scene.attacker()
    await attacker.send(HELLO + headers(1, A) + data(1, b"\0\x7f\xff\xff\xff"))
    return attacker


async def half_bodies(scene: Scene) -> Attacker:
    """Bodies of 40 KiB that go on, and never end."""
    attacker = await scene.attacker()
    await attacker.send(HELLO + b"".join(half(one, 40 * KIB) for one in ids(20)))
    return attacker


async def huge_body(scene: Scene) -> Attacker:
    """One of 80 KiB."""
    attacker = await scene.attacker()
    more = data(1, grpc(make.request_body(b"a" * 40 * KIB)))
    await attacker.send(HELLO + half(1, 40 * KIB) + more)
    return attacker


async def silence(scene: Scene) -> list[Attacker]:
    """Connections that say nothing."""
    return [await scene.attacker() for _ in range(20)]


async def dead_peers(scene: Scene) -> list[Attacker]:
    """Connections that say hello, and answer nothing afterwards."""
    attackers = [await scene.attacker() for _ in range(20)]
    for attacker in attackers:
        await attacker.send(HELLO)
    return attackers


async def accept_storm(scene: Scene) -> list[Attacker]:
    """Four times as many connections as there may be, all at once."""
    coming = await asyncio.gather(*(scene.attacker() for _ in range(200)), return_exceptions=True)
    return [one for one in coming if isinstance(one, Attacker)]


Attack = Callable[[Scene], Awaitable[Attacker | list[Attacker]]]

ATTACKS: dict[str, Attack] = {
    "streams_per_connection": streams_of_a_connection,
    "stream_reserve": streams_of_the_worker,
    "stream_send": zero_window,
    "connection_send": zero_windows,
    "send": slow_readers,
    "partial_messages": half_messages,
    "message": huge_message,
    "pool_bodies": half_bodies,
    "body": huge_body,
    "preface": silence,
    "keepalive": dead_peers,
    "connections": accept_storm,
}


@pytest.mark.parametrize("bound", ATTACKS)
async def test_what_an_attacker_holds(scene: Scene, bound: str) -> None:
    """The bound is reached; whoever is over it pays, and all is free once the attacker is gone."""
    held: list[Attacker] = []

    async def attack() -> None:
        attackers = await ATTACKS[bound](scene)
        held.extend(attackers if isinstance(attackers, list) else [attackers])
        await until(lambda: scene.hits(bound) > 0, f"{bound} is hit")

    await scene.during(bound, attack())
    for attacker in held:
        attacker.close()
    await scene.nothing_is_held()


async def test_unused_connections_keep_no_gateway_out(tmp_path: Path) -> None:
    """When all places are taken by connections that never asked for anything, the oldest of them
    gives way to a gateway; it is told so."""
    async with attacked_worker(tmp_path, replace(BOUNDS, keepalive_seconds=30.0)) as scene:
        await scene.picks(1)
        idle = [await scene.attacker() for _ in range(47)]
        for attacker in idle:
            await attacker.send(HELLO)
        counters = scene.running.worker.counters
        await until(lambda: counters.connections_open == 48, "all places are taken")
        late = await scene.attacker()
        await late.send(HELLO + whole(1, b'{"model": "m"}'))
        async with asyncio.timeout(20):
            assert frames.HEADERS in await kinds(late)
            assert await idle[0].goaway() in (ErrorCode.NO_ERROR, None)
        for attacker in (late, *idle):
            attacker.close()
        await scene.nothing_is_held()


async def kinds(attacker: Attacker) -> set[int]:
    """Types of the frames up to the first DATA."""
    seen: set[int] = set()
    while frames.DATA not in seen:
        head = await attacker.reader.readexactly(9)
        seen.add(head[3])
        await attacker.reader.readexactly(int.from_bytes(head[:3], "big"))
    return seen


async def test_a_socket_that_is_never_read(scene: Scene) -> None:
    """Not a window but the socket is full: the connection ends, whatever its windows say."""

    async def attack() -> None:
        plain = socket.socket()
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plain.setblocking(False)
        host, _, port = scene.address.rpartition(":")
        loop = asyncio.get_running_loop()
        await loop.sock_connect(plain, (host, int(port)))
        wide = {4: frames.MAX_WINDOW}
        open_wide = update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
        await loop.sock_sendall(plain, frames.PREFACE + frames.settings(wide) + open_wide)
        body = b'{"model": "m", "x": "' + b"a" * 60_000 + b'"}'
        try:
            for one in ids(2_000):
                await loop.sock_sendall(plain, whole(one, body))
        except ConnectionError:
            pass
        plain.close()
        assert scene.hits("connection_send") == 1

    await scene.during("a socket that is never read", attack())
    await scene.nothing_is_held()

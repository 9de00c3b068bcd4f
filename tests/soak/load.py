"""Steady requests through a gateway, an open loop in a process of its own that is cheap enough not
to be what is measured: about 80 us of a core a request.

    python -m tests.soak.load SPEC.json OUT.json     (until its stdin ends)

Each request carries a number that the model server says again, so that an answer is good only if
the right pod had the whole request and the client the whole answer. An answer that began well and
did not end well is cut; everything else that is not good has failed.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from fleet.local.demo_events import Outcome

ANSWER_SECONDS = 20.0
MOST_OPEN = 4000
STREAM_EVERY = 4
"""One request in so many asks for a stream."""

TURN_SECONDS = 0.002
PROMPT = "Which worker picked the pod that answers this? " * 4


class Target(msgspec.Struct, frozen=True):
    """A pool to ask.

    Attributes:
        path: of chat completions, through the gateway.
        pod: the address of its only pod, as its answers name it.
    """

    path: str
    model: str
    pod: str


class Spec(msgspec.Struct, frozen=True):
    """What to send; targets are asked in turn.

    Attributes:
        address: of the gateway, `host:port`.
    """

    address: str
    per_second: float
    targets: tuple[Target, ...]


class Result(msgspec.Struct):
    """What came of it.

    Attributes:
        records: began, ended, outcome and why of each request; monotonic seconds.
        skipped: requests that were due and not sent, because too many were open.
        late_seconds: the most that one was sent later than it was due.
    """

    records: list[tuple[float, float, str, str]]
    skipped: int = 0
    late_seconds: float = 0.0


@dataclass(slots=True)
class _Ask:
    began: float
    number: str
    target: Target
    stream: bool

    def request(self, host: str) -> bytes:
        body = json.dumps(
            {
                "model": self.target.model,
                "user": self.number,
                "stream": self.stream,
                "messages": [{"role": "user", "content": PROMPT}],
            }
        )
        head = f"POST {self.target.path} HTTP/1.1\r\nhost: {host}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return (head + body).encode()


class _Connection(asyncio.Protocol):
    """One to the gateway, with one request at a time."""

    def __init__(self, load: "_Load") -> None:
        self._load = load
        self._ask: _Ask | None = None
        self._data = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by name

    def send(self, ask: _Ask, host: str) -> None:
        assert self.transport is not None
        self._ask = ask
        self._data.clear()
        self._timer = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._give_up)
        self.transport.write(ask.request(host))

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = bytes(self._data).partition(b"\r\n\r\n")
        if found and _whole(head, body):
            self._finish(*self._judged(head, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self._ask is not None:
            self._finish(*self._broken("the connection ended"))
        self._load.idle.discard(self)

    def _give_up(self) -> None:
        outcome = self._broken(f"not over in {ANSWER_SECONDS:g} s")
        self._finish(*outcome)
        if self.transport is not None:
            self.transport.abort()

    def _judged(self, head: bytes, body: bytes) -> tuple[Outcome, str]:
        assert self._ask is not None
        status = head[9:12].decode()
        if status != "200":
            return Outcome.FAILED, f"status {status} {bytes(body[:60])!r}"
        if f"x-served-by: {self._ask.target.pod}".encode() not in head.splitlines():
            return Outcome.FAILED, "answered by another pool's pod"
        if f'"id":"{self._ask.number}"'.encode() not in body:
            return Outcome.FAILED, "the pod did not have the whole request"
        if self._ask.stream and b"data: [DONE]\n\n" not in body:
            return Outcome.CUT, "the stream ends without [DONE]"
        return Outcome.GOOD, ""

    def _broken(self, why: str) -> tuple[Outcome, str]:
        begun = self._data.startswith(b"HTTP/1.1 200")
        return (Outcome.CUT if begun else Outcome.FAILED), why

    def _finish(self, outcome: Outcome, why: str) -> None:
        assert self._ask is not None
        assert self._timer is not None
        self._timer.cancel()
        ask, self._ask = self._ask, None
        self._load.finished(ask, outcome, why)
        if self.transport is not None and not self.transport.is_closing():
            self._load.idle.add(self)


def _whole(head: bytes, body: bytes) -> bool:
    for line in head.splitlines():
        if line.startswith(b"content-length: "):
            return len(body) >= int(line[16:])
        if line == b"transfer-encoding: chunked":
            return body.endswith(b"\r\n0\r\n\r\n") or body == b"0\r\n\r\n"
    return False


class _Load:
    """The loop."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._open = 0
        self._opening: set[asyncio.Task[None]] = set()
        self.idle: set[_Connection] = set()
        self.result = Result([])

    def finished(self, ask: _Ask, outcome: Outcome, why: str) -> None:
        self._open -= 1
        self.result.records.append((ask.began, time.monotonic(), outcome.value, why))

    async def run(self, stop: asyncio.Event) -> None:
        began, sent = time.monotonic(), 0
        while not stop.is_set():
            due = int((time.monotonic() - began) * self._spec.per_second)
            while sent < due:
                late = time.monotonic() - began - sent / self._spec.per_second
                self.result.late_seconds = max(self.result.late_seconds, late)
                self._send(sent)
                sent += 1
            await asyncio.sleep(TURN_SECONDS)
        end = time.monotonic() + ANSWER_SECONDS + 1.0
        while self._open and time.monotonic() < end:
            await asyncio.sleep(0.02)

    def _send(self, number: int) -> None:
        if self._open >= MOST_OPEN:
            self.result.skipped += 1
            return
        self._open += 1
        target = self._spec.targets[number % len(self._spec.targets)]
        stream = number // len(self._spec.targets) % STREAM_EVERY == 0
        ask = _Ask(time.monotonic(), str(number), target, stream)
        if self.idle:
            self.idle.pop().send(ask, self._spec.address)
            return
        task = asyncio.create_task(self._send_anew(ask))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _send_anew(self, ask: _Ask) -> None:
        host, _, port = self._spec.address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            _, made = await loop.create_connection(lambda: _Connection(self), host, int(port))
        except OSError as error:
            self.finished(ask, Outcome.FAILED, f"the gateway: {error.strerror}")
            return
        made.send(ask, self._spec.address)


async def _until_told(spec: Spec) -> Result:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    load = _Load(spec)
    await load.run(stop)
    return load.result


def main(spec: Path, out: Path) -> None:
    """Send what `spec` says until stdin ends; write what came of it."""
    wanted = msgspec.json.decode(spec.read_bytes(), type=Spec)
    out.write_bytes(msgspec.json.encode(uvloop.run(_until_told(wanted))))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

"""The load: one process, one connection, many streams of bytes that were made beforehand.

    python -m tests.bench.load < PLAN        (see `Plan`; prints one line of JSON, see `Outcome`)

Latency is counted from the instant at which a request was due, not from when it was sent: a load
that falls behind says so in its own figures.
"""

import gc
import json
import os
import select
import socket
import ssl
import struct
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from epp_worker.http2 import frames
from tests.bench.script import SCRIPTS, Script, Step

_READ_BYTES = 1 << 18
_GIVE_UP_SECONDS = 20.0
_DRAIN_SECONDS = 2.0
_INITIAL_WINDOW = 4
_HELLO = (
    frames.PREFACE
    + frames.settings({1: 0, 4: frames.MAX_WINDOW})
    + frames.window_update(0, frames.MAX_WINDOW - frames.DEFAULT_WINDOW)
)

_read_head = struct.Struct(">BHBBI").unpack_from
_read_setting = struct.Struct(">HI").unpack_from
_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do.

    Attributes:
        script: of `SCRIPTS`.
        in_flight: streams at once, the next as soon as one is through; 0 = by `rate`.
        rate: streams begun per second, whatever comes back.
        pids: processes whose CPU is measured.
        hold: so many streams are opened first and stay as they are after their first answers.
    """

    port: int
    script: str
    in_flight: int = 64
    rate: float = 0.0
    seconds: float = 1.0
    warm_seconds: float = 0.3
    tls: bool = False
    pids: tuple[int, ...] = ()
    hold: int = 0
    core: int | None = None


@dataclass(slots=True)
class Outcome:
    """What came of it.

    Attributes:
        cpu: seconds of CPU of each process of the plan.
        own_cpu: of the load itself.
        picks: (p50, p99, worst) milliseconds to the end of a script's first step.
        wholes: the same of all of it.
        held_bytes: what each held stream added to the first process.
    """

    streams: int
    failed: int
    seconds: float
    cpu: list[float]
    own_cpu: float
    picks: tuple[float, float, float]
    wholes: tuple[float, float, float]
    held_bytes: float = 0.0


class _Wire(Protocol):
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...


class _Plain:
    """A socket."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(_GIVE_UP_SECONDS)
        self.fileno = self._socket.fileno
        self.write = self._socket.sendall

    def read(self) -> bytes:
        """What is there; b"" at the end."""
        return self._socket.recv(_READ_BYTES)


class _Tls:
    """A socket with TLS over it."""

    def __init__(self, port: int) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        self._plain = _Plain(port)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)
        self.fileno = self._plain.fileno
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._plain.write(self._out.read())
                self._in.write(self._plain.read())
            else:
                break

    def write(self, data: bytes) -> None:
        """All of it."""
        self._tls.write(data)
        self._plain.write(self._out.read())

    def read(self) -> bytes:
        """What is there, perhaps nothing."""
        self._in.write(self._plain.read())
        parts = []
        try:
            while part := self._tls.read(_READ_BYTES):
                parts.append(part)
        except ssl.SSLWantReadError:
            pass
        return b"".join(parts)


class _Call:
    """One stream."""

    __slots__ = ("due", "got", "script", "step", "unsent", "want", "window")

    def __init__(self, script: Script, due: float, window: int) -> None:
        self.script = script
        self.step = 0
        self.want = script[0].want
        self.due = due
        self.got = 0
        self.window = window
        self.unsent: deque[tuple[int, bytes]] | None = None


class Load:
    """One connection and what is under way on it."""

    def __init__(self, wire: _Wire, script: Script) -> None:
        self._wire = wire
        self.script = script
        self._out: list[bytes] = [_HELLO]
        self._calls: dict[int, _Call] = {}
        self._waiting: deque[tuple[int, _Call]] = deque()
        self._next = 1
        self._rest = b""
        self._owed = 0
        self._window = self._initial = frames.DEFAULT_WINDOW
        self.greeted = False
        self.picks: list[float] = []
        self.wholes: list[float] = []
        self.failed = 0

    @property
    def open(self) -> int:
        """Streams under way."""
        return len(self._calls)

    def begin(self, due: float) -> None:
        """Open a stream that was to be opened at `due`."""
        stream_id = self._next
        self._next += 2
        call = self._calls[stream_id] = _Call(self.script, due, self._initial)
        self._send(stream_id, call, self.script[0])

    def flush(self) -> None:
        """Write what was said."""
        if self._out:
            data = b"".join(self._out)
            self._out.clear()
            self._wire.write(data)

    def wait(self, seconds: float) -> None:
        """Read what comes within `seconds`, once."""
        self.flush()
        if select.select([self._wire], (), (), max(0.0, seconds))[0]:
            data = self._wire.read()
            if data:
                self._read(data)

    def _send(self, stream_id: int, call: _Call, step: Step) -> None:
        flow = step.flow
        if flow <= self._window and flow <= call.window and not call.unsent:
            self._window -= flow
            call.window -= flow
            self._out.append(stream_id.to_bytes(4, "big").join(step.pieces))
            return
        number = stream_id.to_bytes(4, "big")
        call.unsent = call.unsent or deque()
        call.unsent.extend((flow, head + number + part) for flow, head, part in step.frames)
        self._waiting.append((stream_id, call))
        self._pump()

    def _pump(self) -> None:
        """Send, in order of the streams, what the windows have room for."""
        for _ in range(len(self._waiting)):
            stream_id, call = self._waiting.popleft()
            unsent = call.unsent
            while unsent and unsent[0][0] <= min(self._window, call.window):
                flow, data = unsent.popleft()
                self._window -= flow
                call.window -= flow
                self._out.append(data)
            if unsent and stream_id in self._calls:
                self._waiting.append((stream_id, call))

    def _read(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        calls = self._calls
        while end - at >= 9:
            high, low, kind, flags, stream_id = _read_head(data, at)
            size = high << 16 | low
            at += 9
            if at + size > end:
                at -= 9
                break
            at += size
            if kind == 0:
                self._owed += size
            elif kind != 1:
                self._control(kind, flags, stream_id, data[at - size : at])
                continue
            call = calls.get(stream_id)
            if call is None:
                continue
            if kind == 0:
                call.got += size
            if flags & 1:
                self._ended(stream_id, call)
            elif call.want and call.got >= call.want:
                self._advance(stream_id, call)
        self._rest = data[at:]
        if self._owed > 1 << 24:
            self._out.append(frames.window_update(0, self._owed))
            self._owed = 0

    def _advance(self, stream_id: int, call: _Call) -> None:
        """A step is through."""
        if not call.step:
            self.picks.append(_clock() - call.due)
        call.step += 1
        if call.step < len(call.script):
            step = call.script[call.step]
            call.want = step.want
            self._send(stream_id, call, step)
        elif call.script is self.script:
            self._over(stream_id, call)
        else:
            call.want = 0  # it is held

    def _ended(self, stream_id: int, call: _Call) -> None:
        """The server has ended it."""
        if call.want or not call.got:
            del self._calls[stream_id]
            self.failed += 1
            return
        self.picks.append(_clock() - call.due)
        self._over(stream_id, call)

    def _over(self, stream_id: int, call: _Call) -> None:
        """As Envoy does: what is over is reset, unless both sides have ended it."""
        del self._calls[stream_id]
        self.wholes.append(_clock() - call.due)
        if not call.script[-1].ends:
            self._out.append(frames.rst_stream(stream_id, 8))

    def _control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == frames.WINDOW_UPDATE:
            self._granted(stream_id, int.from_bytes(payload, "big"))
        elif kind == frames.SETTINGS and not flags & frames.FLAG_ACK:
            self.greeted = True
            self._out.append(frames.SETTINGS_ACK)
            for at in range(0, len(payload), 6):
                name, value = _read_setting(payload, at)
                if name == _INITIAL_WINDOW:
                    grown, self._initial = value - self._initial, value
                    for call in self._calls.values():
                        call.window += grown
                    self._pump()
        elif kind == frames.PING and not flags & frames.FLAG_ACK:
            self._out.append(frames.ping(payload, ack=True))
        elif kind == frames.GOAWAY:
            raise ConnectionError(payload[8:])
        elif kind == frames.RST_STREAM and self._calls.pop(stream_id, None) is not None:
            self.failed += 1

    def _granted(self, stream_id: int, increment: int) -> None:
        if not stream_id:
            self._window += increment
        elif (call := self._calls.get(stream_id)) is not None:
            call.window += increment
        if self._waiting:
            self._pump()


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process, all its threads together, has had."""
    return time.clock_gettime(~pid << 3 | 2)


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(plan: Plan) -> Outcome:
    """Carry out a plan."""
    if plan.core is not None:
        os.sched_setaffinity(0, {plan.core})
    load = Load(_Tls(plan.port) if plan.tls else _Plain(plan.port), SCRIPTS[plan.script]())
    while not load.greeted:
        load.wait(1.0)
    held_bytes = _hold(load, plan) if plan.hold else 0.0
    gc.freeze()
    gc.disable()
    drive = _by_rate if plan.rate else _by_number
    drive(load, plan, _clock() + plan.warm_seconds)
    load.picks.clear()
    load.wholes.clear()
    load.failed = 0
    before = [cpu_of(pid) for pid in plan.pids]
    own, began = time.process_time(), _clock()
    drive(load, plan, began + plan.seconds)
    seconds, own = _clock() - began, time.process_time() - own
    cpu = [cpu_of(pid) - was for pid, was in zip(plan.pids, before, strict=True)]
    return Outcome(
        len(load.wholes),
        load.failed,
        seconds,
        cpu,
        own,
        _quantiles(load.picks),
        _quantiles(load.wholes),
        held_bytes,
    )


def _by_number(load: Load, plan: Plan, until: float) -> None:
    held = plan.hold
    while (now := _clock()) < until:
        for _ in range(plan.in_flight + held - load.open):
            load.begin(now)
        load.wait(until - now)


def _by_rate(load: Load, plan: Plan, until: float) -> None:
    gap = 1.0 / plan.rate
    due = _clock()
    while (now := _clock()) < until:
        while due <= now:
            load.begin(due)
            due += gap
        load.wait(min(due, until) - _clock())


def _hold(load: Load, plan: Plan) -> float:
    """Open streams that stay; bytes that each of them costs the first process."""
    script = load.script
    load.script = SCRIPTS["pick"]()
    warm = _clock() + plan.warm_seconds
    _by_number(load, Plan(plan.port, "pick"), warm)
    while load.open:
        load.wait(1.0)
    opened = load.script
    load.script = ()
    before = resident_bytes(plan.pids[0])
    load.picks.clear()
    for start in range(0, plan.hold, 50):
        load.script, measured = opened, load.script
        for _ in range(50):
            load.begin(_clock())
        load.script = measured
        while len(load.picks) < start + 50:
            load.wait(1.0)
            if load.failed:
                raise ConnectionError("streams to be held were refused")
    after = resident_bytes(plan.pids[0])
    load.script = script
    return (after - before) / plan.hold


def _quantiles(values: list[float]) -> tuple[float, float, float]:
    values.sort()
    if not values:
        return 0.0, 0.0, 0.0
    size = len(values)
    return values[size // 2] * 1e3, values[size * 99 // 100] * 1e3, values[-1] * 1e3


if __name__ == "__main__":
    outcome = run(Plan(**json.load(sys.stdin)))
    sys.stdout.write(json.dumps(asdict(outcome)) + "\n")

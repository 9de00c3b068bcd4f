"""Valid traffic in whatever pieces, and traffic that went wrong on its way.

What an `h2` client says is recorded once, in one piece. Cut anywhere it gets the same answers; with
frames changed, lost or repeated nothing is raised, nothing hangs, no bound is passed, and nothing
stays behind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epp_worker.http2 import Http2Limits, frames
from tests.http2_peer import Client, Frame, Wire, exchange, split

EXAMPLES = 500
LIMITS = Http2Limits(
    max_partial_bytes=60_000,
    max_streams=16,
    max_send_bytes=200_000,
    max_stream_send_bytes=80_000,
    max_connection_send_bytes=150_000,
)
FUZZ = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Step:
    """One thing that the client does with its `stream`-th stream."""

    what: str
    stream: int
    size: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(("send", "send", "send", "empty", "end", "reset", "ping")),
        st.integers(0, 3),
        st.integers(0, 3_000),
    ),
    min_size=1,
    max_size=12,
)


class Heard(Wire):
    """Remembers what was said to it."""

    def __init__(self, limits: Http2Limits) -> None:
        super().__init__(limits=limits)
        self.said = bytearray()

    def feed(self, data: bytes) -> None:
        """Note it, and take it."""
        self.said += data
        super().feed(data)


def record(steps: Sequence[Step]) -> bytes:
    """All that a client says that does this, and takes the answers."""
    wire, client = Heard(limits=LIMITS), Client()
    streams = [client.open() for _ in range(4)]
    over: set[int] = set()
    for step in steps:
        stream_id = streams[step.stream]
        if step.what == "ping":
            client.h2.ping(step.size.to_bytes(8, "big"))
        elif stream_id not in over:
            if step.what == "reset":
                client.h2.reset_stream(stream_id)
            elif step.what == "end":
                client.h2.end_stream(stream_id)
            else:
                client.send(stream_id, b"" if step.what == "empty" else b"x" * step.size)
            if step.what in ("reset", "end"):
                over.add(stream_id)
        exchange(wire, client)
    return bytes(wire.said)


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The same bytes, cut."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def answers(parts: Sequence[bytes], *, between: bool) -> list[Frame]:
    """What a new server says to these reads; `between`: the loop turns after each of them."""
    wire = Wire(limits=LIMITS)
    for part in parts:
        if wire.transport.closed:
            break
        wire.connection.data_received(part)
        if between:
            wire.loop.run()
    wire.loop.run()
    return split(wire.take())


CUTS = st.lists(st.integers(0, 1 << 20), max_size=30)


@FUZZ
@given(STEPS, CUTS, st.booleans())
def test_cuts_change_nothing(steps: Sequence[Step], cuts: Sequence[int], between: bool) -> None:
    """The same frames come back, in the same order, wherever the reads ended."""
    said = record(steps)
    assert answers(pieces(said, cuts), between=between) == answers([said], between=between)


def test_single_bytes_change_nothing() -> None:
    """The finest cut of all."""
    said = record(
        [Step("send", 0, 300), Step("send", 1, 0), Step("end", 0, 0), Step("reset", 1, 0)]
    )
    assert answers([said[at : at + 1] for at in range(len(said))], between=True) == answers(
        [said], between=True
    )


@dataclass(frozen=True)
class Harm:
    """One thing that happens to the frame at `at` (counted round)."""

    how: str
    at: int
    value: int


HARMS = st.lists(
    st.builds(
        Harm,
        st.sampled_from(
            ("type", "flags", "length", "stream", "byte", "drop", "repeat", "swap", "truncate")
        ),
        st.integers(0, 1 << 16),
        st.integers(0, 1 << 32),
    ),
    min_size=1,
    max_size=6,
)


def harm(said: bytes, harms: Sequence[Harm]) -> bytes:
    """The preface, and frames to which all that has happened."""
    size = len(frames.PREFACE)
    whole = [_join(*frame) for frame in split(said[size:])]
    for one in harms:
        at = one.at % len(whole)
        frame = bytearray(whole[at])
        if one.how == "type":
            frame[3:4] = bytes([one.value % 12])  # also of a frame that was truncated before
        elif one.how == "flags":
            frame[4:5] = bytes([one.value % 256])
        elif one.how == "length":
            frame[0:3] = (one.value % (1 << 15)).to_bytes(3, "big")
        elif one.how == "stream":
            frame[5:9] = (one.value % 12).to_bytes(4, "big")
        elif one.how == "byte":
            frame[one.value % len(frame)] ^= 1 + one.value % 255
        elif one.how == "truncate":
            del frame[one.value % len(frame) :]
        elif one.how == "drop":
            frame.clear()
        elif one.how == "repeat":
            frame *= 2
        else:
            whole[at], whole[at - 1] = whole[at - 1], whole[at]
            continue
        whole[at] = bytes(frame)
        if not any(whole):
            break
        whole = [each for each in whole if each]
    return frames.PREFACE + b"".join(whole)


def _join(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    return frames.frame(kind, flags, stream_id, payload)


@FUZZ
@given(STEPS, HARMS, CUTS)
def test_no_harm_does_harm(
    steps: Sequence[Step], harms: Sequence[Harm], cuts: Sequence[int]
) -> None:
    """Whatever arrives: nothing is raised, all bounds hold, and nothing is left in the end."""
    wire = Wire(limits=LIMITS)
    for part in pieces(harm(record(steps), harms), cuts):
        wire.connection.data_received(part)
        wire.loop.run()
        assert wire.shared.budget.held <= LIMITS.max_partial_bytes
        assert wire.shared.unsent.held <= LIMITS.max_send_bytes
        assert wire.shared.streams_held <= LIMITS.max_streams
    split(wire.take())  # what we say is whole frames, whatever we heard
    wire.loop.advance(700)
    if not wire.transport.aborted:
        wire.lose()
    else:
        wire.connection.connection_lost(None)
    shared = wire.shared
    assert shared.streams_held == shared.counters.streams_open == 0
    assert shared.unsent.held == shared.budget.held == shared.resting == 0
    assert shared.counters.handler_errors == 0
    assert all(handler.aborts <= 1 for handler in wire.service.handlers)

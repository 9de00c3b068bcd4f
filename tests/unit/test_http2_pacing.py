"""A client that is held back, and when what was sent is out."""

from epp_worker.http2 import Http2Limits
from epp_worker.http2.errors import ErrorCode
from epp_worker.http2.flow import ReceiveWindow
from tests.http2_peer import Client, Wire, exchange, grpc, raw

WINDOW = 65_535
DATA, RST, UPDATE = 0, 3, 8
PART = 16_000


def held_back() -> tuple[Wire, Client, int]:
    """A stream with a window of 65,535 whose handler holds the client back and says nothing."""
    wire, client = Wire(limits=Http2Limits(stream_window=WINDOW)), Client()
    exchange(wire, client)
    stream_id = client.open()
    exchange(wire, client)
    handler = wire.service.last
    handler.answers = False
    handler.stream.hold_back(on=True)
    return wire, client, stream_id


def updates(wire: Wire, stream_id: int) -> list[int]:
    """What the stream was granted since the last look."""
    return [
        int.from_bytes(payload, "big")
        for kind, _, number, payload in wire.frames()
        if kind == UPDATE and number == stream_id
    ]


def test_a_window_owes_what_it_does_not_grant() -> None:
    """All of it comes at once when the client may go on."""
    window = ReceiveWindow(100)
    assert window.take(60) == 60
    assert window.hold_back(on=True) == 0
    assert [window.take(60), window.take(30)] == [0, 0]
    assert window.hold_back(on=False) == 60
    assert window.take(30) == 60
    assert window.hold_back(on=False) == 0


def test_a_window_that_is_overrun_says_so() -> None:
    """A client that was granted nothing may send one window, not two."""
    window = ReceiveWindow(100)
    window.hold_back(on=True)
    assert window.take(60) == 0
    assert window.take(60) == -1


def test_a_client_that_is_held_back_is_granted_nothing() -> None:
    """What its window has left still arrives; later the rest of it may follow."""
    wire, client, stream_id = held_back()
    for _ in range(4):
        wire.feed(raw(DATA, 0, stream_id, grpc(b"x" * (PART - 5))))
    assert len(wire.service.last.messages) == 4
    assert updates(wire, stream_id) == []
    wire.service.last.stream.hold_back(on=False)
    wire.loop.run()
    assert updates(wire, stream_id) == [3 * PART]
    client.send(stream_id, b"more", end=True)
    wire.feed(client.out())
    assert wire.service.last.messages[-1] == b"more"
    assert wire.service.last.closed == 1


def test_a_client_that_does_not_obey_loses_its_stream() -> None:
    """It is reset for flow control, and only it."""
    wire, _, stream_id = held_back()
    for _ in range(7):
        wire.feed(raw(DATA, 0, stream_id, grpc(b"x" * (PART - 5))))
    resets = [payload for kind, _, number, payload in wire.frames() if kind == RST and number]
    assert resets == [int(ErrorCode.FLOW_CONTROL_ERROR).to_bytes(4, "big")]
    assert wire.service.last.aborts == 1
    assert not wire.closed()


def test_what_waits_for_the_clients_window_is_told_when_it_is_out() -> None:
    """At once if nothing waits; else with the last of it; never once the stream is dead."""
    wire, client = Wire(), Client(auto=False)
    exchange(wire, client)
    stream_id = client.open()
    exchange(wire, client)
    stream = wire.service.last.stream
    told: list[str] = []
    stream.when_sent(lambda: told.append("at once"))
    assert told == ["at once"]
    stream.send(b"x" * 100_000)
    stream.when_sent(lambda: told.append("earlier"))
    stream.when_sent(lambda: told.append("later"))
    grant = raw(UPDATE, 0, stream_id, (100_000).to_bytes(4, "big"))
    wire.feed(grant)
    assert told == ["at once"]
    wire.feed(raw(UPDATE, 0, 0, (100_000).to_bytes(4, "big")))
    assert told == ["at once", "later"]
    stream.send(b"x" * 200_000)
    stream.when_sent(lambda: told.append("dead"))
    wire.feed(raw(RST, 0, stream_id, (8).to_bytes(4, "big")))
    assert told == ["at once", "later"]

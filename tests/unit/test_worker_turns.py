"""Messages in turns: a group that floods waits in its own line, another one's go first."""

from collections.abc import Callable
from typing import cast

from epp_worker.http2.contract import GrpcStream
from epp_worker.turns import MAX_HELD_BYTES, SHARE_BYTES, Line, PacedStream, Turns

KIB = 1024


class Clock:
    """A loop that runs when told; each message takes a tenth of a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.turns = Turns(self.soon.append, lambda: self.now)
        self.seen: list[bytes | str] = []

    def run_once(self) -> None:
        """One turn of the loop."""
        due, self.soon[:] = list(self.soon), []
        for callback in due:
            callback()

    def run(self) -> int:
        """Until nothing is due; how many turns that took."""
        count = 0
        while self.soon:
            self.run_once()
            count += 1
        return count

    def stream(self, line: Line) -> tuple[PacedStream, "Side"]:
        """A stream of a group."""
        side = Side(self)
        return self.turns.pace(cast(GrpcStream, side), line, side), side


class Side:
    """Both what is behind the stream, and the stream itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.breaks = False
        self.held_back: list[bool] = []
        self.ends: list[int] = []
        self.aborts = 0

    def received(self, message: bytes) -> None:
        """Note the first bytes."""
        self._clock.now += 0.00005
        if self.breaks:
            raise RuntimeError("a fault of ours")
        self._clock.seen.append(message[:2])

    def half_closed(self) -> None:
        """Note it."""
        self._clock.seen.append("end")

    def aborted(self) -> None:
        """Count."""
        self.aborts += 1

    def hold_back(self, *, on: bool) -> None:
        """Note it."""
        self.held_back.append(on)

    def end(self, status: int = 0, message: str = "") -> None:
        """Note the status."""
        del message
        self.ends.append(status)


def body(name: bytes, size: int = SHARE_BYTES) -> bytes:
    """A message."""
    return name + b"x" * (size - len(name))


def test_a_flood_does_not_stand_before_others() -> None:
    """Of 20 large messages of one group one is read; the other group's comes before the rest."""
    clock = Clock()
    noisy, quiet = Line(), Line()
    for number in range(20):
        clock.stream(noisy)[0].received(body(b"%02d" % number))
    clock.stream(quiet)[0].received(b"me")
    assert clock.seen == [b"00", b"me"]
    assert clock.turns.deferred == 19
    assert clock.turns.held == noisy.held == 19 * SHARE_BYTES
    assert clock.run() >= 4  # five of them fill a turn
    assert clock.seen[2:] == [b"%02d" % number for number in range(1, 20)]
    assert clock.turns.held == noisy.held == 0


def test_lines_take_turns() -> None:
    """Two groups that both flood go on message by message."""
    clock = Clock()
    lines = Line(), Line()
    for name, line in zip((b"a", b"b"), lines, strict=True):
        for number in range(4):
            clock.stream(line)[0].received(body(name + b"%d" % number))
    clock.run()
    assert clock.seen == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2", b"a3", b"b3"]


def test_a_share_comes_back_with_each_turn() -> None:
    """Nothing waits that comes at an ordinary pace."""
    clock = Clock()
    line = Line()
    stream, _ = clock.stream(line)
    for number in range(5):
        stream.received(body(b"%02d" % number))
        clock.run_once()
    assert clock.turns.deferred == 0


def test_order_within_a_stream_never_changes() -> None:
    """What follows a message that waits, waits too: small ones, and the client's end."""
    clock = Clock()
    line = Line()
    clock.stream(line)[0].received(body(b"zz"))
    stream, _ = clock.stream(line)
    stream.received(b"m1")
    stream.received(b"m2")
    stream.half_closed()
    assert clock.seen == [b"zz"]
    clock.run()
    assert clock.seen == [b"zz", b"m1", b"m2", "end"]


def test_a_stream_that_is_gone_leaves_nothing() -> None:
    """Its messages are let go of at once, and are never read."""
    clock = Clock()
    line = Line()
    clock.stream(line)[0].received(body(b"zz"))
    stream, side = clock.stream(line)
    stream.received(body(b"m1"))
    stream.aborted()
    assert clock.turns.held == line.held == 0
    clock.run()
    assert (clock.seen, side.aborts) == ([b"zz"], 1)


def test_a_fault_ends_its_stream_alone() -> None:
    """INTERNAL for the stream; the next one in line goes on."""
    clock = Clock()
    line = Line()
    clock.stream(line)[0].received(body(b"zz"))
    broken, side = clock.stream(line)
    side.breaks = True
    broken.received(b"m1")
    broken.received(b"m2")
    other, _ = clock.stream(line)
    other.received(b"m3")
    clock.run()
    assert (side.ends, side.aborts) == ([13], 1)
    assert clock.seen == [b"zz", b"m3"]
    assert clock.turns.held == 0


def test_a_stream_with_much_that_waits_is_held_back() -> None:
    """Its window opens again once a quarter of a MiB is left."""
    clock = Clock()
    line = Line()
    clock.stream(line)[0].received(body(b"zz"))
    stream, side = clock.stream(line)
    for _ in range(5):
        stream.received(body(b"m", 64 * KIB))
    assert side.held_back == [True]
    clock.run()
    assert side.held_back == [True, False]


def test_what_finds_no_room_is_read_at_once_and_in_order() -> None:
    """One line may hold half of the bound: then its newest message goes ahead of other streams',
    after what its own stream has waiting."""
    clock = Clock()
    line = Line()
    clock.stream(line)[0].received(body(b"zz"))
    clock.stream(line)[0].received(body(b"aa", MAX_HELD_BYTES // 2 - 10))
    stream, _ = clock.stream(line)
    stream.received(b"m1")
    stream.received(body(b"m2"))
    assert clock.seen == [b"zz", b"m1", b"m2"]
    clock.run()
    assert clock.seen[3:] == [b"aa"]
    assert clock.turns.held == 0


def take_long(clock: Clock, side: "Side") -> None:
    """Each of its messages takes 20 ms."""
    quick = side.received

    def received(message: bytes) -> None:
        clock.now += 0.02
        quick(message)

    side.received = received  # type: ignore[method-assign]


def test_one_long_message_ends_the_turn_for_all() -> None:
    """After a body that took 20 ms nothing more is read at once, of whatever group; after a turn
    for timers and sockets the others' messages come first."""
    clock = Clock()
    stream, side = clock.stream(Line())
    take_long(clock, side)
    stream.received(b"b1")
    clock.stream(Line())[0].received(b"m1")
    other, _ = clock.stream(Line())
    other.received(b"m2")
    assert clock.seen == [b"b1"]
    clock.run_once()
    assert clock.seen == [b"b1"]
    clock.run_once()
    assert clock.seen == [b"b1", b"m1", b"m2"]
    clock.run()
    other.received(b"m3")
    assert clock.seen[-1] == b"m3"


def test_long_messages_come_no_closer_than_every_other_turn() -> None:
    """Two bodies of 20 ms that end at once: what else is due comes between them, not after both;
    where every turn is long, every other one is enough to go on."""
    clock = Clock()
    for name in (b"b1", b"b2", b"b3"):
        stream, side = clock.stream(Line())
        take_long(clock, side)
        stream.received(name)
    read = [len(clock.seen)]
    while clock.soon:
        clock.run_once()
        read.append(len(clock.seen))
    assert read == [1, 1, 2, 2, 3, 3]


def test_a_machine_that_is_always_slow_goes_on() -> None:
    """Where each turn of the loop takes 10 ms, whatever for, one message is read in two of them."""
    clock = Clock()
    line = Line()
    for number in range(5):
        clock.stream(line)[0].received(body(b"%02d" % number))
    for _ in range(8):
        clock.now += 0.01
        clock.run_once()
    assert clock.seen == [b"00", b"01", b"02", b"03", b"04"]

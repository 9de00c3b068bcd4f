"""Tables of what was last seen where: pieces, bounds, and no circles."""

import pytest

from epp_worker.scheduling.state_slots import LORA, SeenTable, seen_tables


class Time:
    """A clock that the test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


def copied(source: SeenTable, time: Time, limit: int = 16_384) -> SeenTable:
    copy = SeenTable(source.name, time)
    for piece in source.snapshot(limit):
        copy.apply("life", piece, relay=True)
    return copy


def test_a_snapshot_carries_ages(time: Time) -> None:
    """The copy knows when each pair was seen."""
    table = SeenTable(LORA, time)
    table.note("sql", "e1")
    time.now += 5
    table.note("sql", "e2")
    assert copied(table, time).at("sql") == {"e1": 5.0, "e2": 0.0}


def test_pieces_are_bounded(time: Time) -> None:
    """1,000 pairs of 18 bytes in pieces of about 1 kB."""
    table = SeenTable(LORA, time)
    for number in range(1000):
        table.note(f"adapter-{number:04}", "e1:800")
    pieces = list(table.snapshot(1024))
    assert max(map(len, pieces)) < 1500
    assert len(pieces) >= 1000 * 18 / 1500
    assert len(copied(table, time, 1024)) == 1000


def test_a_table_that_changes_under_its_snapshot(time: Time) -> None:
    """Pairs that go or come between two pieces do no harm."""
    table = SeenTable(LORA, time, limit=100)
    for number in range(100):
        table.note(f"old-{number}", "e1")
    pieces = table.snapshot(64)
    copy = SeenTable(LORA, time)
    copy.apply("life", next(pieces), relay=True)
    for number in range(60):
        table.note(f"new-{number}", "e1")
    for piece in pieces:
        copy.apply("life", piece, relay=True)
    assert 40 <= len(copy) <= 100


def test_only_what_changed_is_drained_and_only_while_somebody_follows(time: Time) -> None:
    """Told once when something changes first, and again after a drain."""
    told: list[int] = []
    table = SeenTable(LORA, time)
    table.note("before", "e1")
    table.record(lambda: told.append(1))
    assert table.drain_delta(1024) is None
    for _ in range(3):
        table.note("sql", "e1")
    assert len(told) == 1
    piece = table.drain_delta(1024)
    assert piece is not None
    copy = SeenTable(LORA, time)
    copy.apply("life", piece, relay=True)
    assert (list(copy.at("sql")), list(copy.at("before"))) == (["e1"], [])
    assert table.drain_delta(1024) is None
    table.note("chat", "e1")
    assert len(told) == 2
    table.record(None)
    table.note("chat", "e2")
    assert table.drain_delta(1024) is None


def test_a_large_delta_is_drained_in_pieces(time: Time) -> None:
    """500 changed pairs, about 256 bytes each time."""
    table = SeenTable(LORA, time)
    table.record(lambda: None)
    for number in range(500):
        table.note(f"adapter-{number}", "e1")
    copy = SeenTable(LORA, time)
    sizes = []
    while (piece := table.drain_delta(256)) is not None:
        sizes.append(len(piece))
        copy.apply("life", piece, relay=True)
    assert len(copy) == 500
    assert max(sizes) < 400


def test_two_tables_that_feed_each_other_stop(time: Time) -> None:
    """What comes back, delayed on its way, is no news; what is really newer is."""
    one, two = SeenTable(LORA, time), SeenTable(LORA, time)
    one.record(lambda: None)
    two.record(lambda: None)
    one.note("sql", "e1")
    there = one.drain_delta(1024)
    assert there is not None
    time.now += 0.4
    two.apply("life-1", there, relay=True)
    back = two.drain_delta(1024)
    assert back is not None
    time.now += 0.4
    one.apply("life-2", back, relay=True)
    assert one.drain_delta(1024) is None
    time.now += 3
    two.note("sql", "e1")
    newer = two.drain_delta(1024)
    assert newer is not None
    one.apply("life-2", newer, relay=True)
    assert one.drain_delta(1024) is not None


def test_what_an_owner_tells_is_not_told_on(time: Time) -> None:
    """It has told it to all who follow."""
    owner, follower = SeenTable(LORA, time), SeenTable(LORA, time)
    owner.note("sql", "e1")
    follower.record(lambda: None)
    for piece in owner.snapshot(1024):
        follower.apply("life", piece, relay=False)
    assert list(follower.at("sql")) == ["e1"]
    assert follower.drain_delta(1024) is None


def test_the_pair_unseen_for_longest_goes(time: Time) -> None:
    """A full table, and keys that are too long."""
    table = SeenTable(LORA, time, limit=2)
    for key in ("a", "b", "a", "c", "x" * 257):
        table.note(key, "e1")
    assert [key for key in ("a", "b", "c") if table.at(key)] == ["a", "c"]
    assert len(table) == 2


def test_a_damaged_piece_is_a_value_error(time: Time) -> None:
    """So that it is counted, and the stream goes on."""
    with pytest.raises(ValueError, match="unreadable"):
        SeenTable(LORA, time).apply("life", b"\xc1", relay=True)


def test_only_known_names_make_tables(time: Time) -> None:
    """A later version's slot is passed over."""
    assert seen_tables("tomorrow", time) is None
    assert seen_tables(LORA, time) is not None

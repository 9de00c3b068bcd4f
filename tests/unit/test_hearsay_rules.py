"""What a worker takes from its peers' answers when nobody else tells it what to hold."""

import pytest

from epp_worker.hearsay.rules import Asker, Heard, adopt
from fleet.control.messages import OwnerOf, WorkerPeer
from fleet.control.peer_messages import HOLDS, AskHolds, Holds
from fleet.errors import FormatError
from fleet.model import EpochVersion, GroupKey, Hold, PoolId, PoolRef, Share, ShareEntry

NOTHING = Holds("f", "w0", "i0", EpochVersion(0, 0), ())
ME = Asker("f", "w0", "i0", 0, NOTHING)


def group(name: str) -> GroupKey:
    return GroupKey("ns", f"{name}-epp", 9002)


def entry(name: str, hold: Hold, owner: str | None) -> ShareEntry:
    return ShareEntry(group(name), hold, (PoolId(PoolRef("ns", name), f"uid-{name}"),), owner)


def heard(worker: str, version: tuple[int, int], *entries: ShareEntry, fleet: str = "f") -> Heard:
    holds = Holds(fleet, worker, f"life-{worker}", EpochVersion(*version), entries)
    return Heard(f"{worker}:9004", holds)


def test_groups_come_back_by_what_their_stand_bys_and_drainers_say() -> None:
    """As the share of this incarnation at the version of the answers; the rest is known, too."""
    adoption = adopt(
        ME,
        [
            heard("w1", (3, 7), entry("a", Hold.STANDBY, "w0"), entry("x", Hold.OWNER, "w1")),
            heard("w2", (3, 7), entry("b", Hold.DRAINING, "w0"), entry("x", Hold.STANDBY, "w1")),
        ],
    )
    assert adoption.share == Share(
        "f",
        "w0",
        "i0",
        EpochVersion(3, 7),
        (entry("a", Hold.OWNER, "w0"), entry("b", Hold.OWNER, "w0")),
    )
    assert adoption.owners == (OwnerOf(group("x"), "w1"),)
    assert adoption.peers == {
        "w1": WorkerPeer("w1:9004", "life-w1"),
        "w2": WorkerPeer("w2:9004", "life-w2"),
    }


def test_of_two_answers_the_higher_version_counts() -> None:
    """The group has gone to another worker since w1 was told; in whatever order they come."""
    answers = [
        heard("w1", (3, 9), entry("a", Hold.OWNER, "w1")),
        heard("w2", (3, 7), entry("a", Hold.STANDBY, "w0"), entry("b", Hold.STANDBY, "w0")),
    ]
    for order in (answers, answers[::-1]):
        adoption = adopt(ME, order)
        assert adoption.share is not None
        assert adoption.share.version == (3, 9)
        assert adoption.share.entries == (entry("b", Hold.OWNER, "w0"),)
        assert adoption.owners == (OwnerOf(group("a"), "w1"),)


def test_an_older_leaders_word_makes_nothing_ours() -> None:
    """Epoch 4 may have moved the group in a share that nobody who answered has."""
    adoption = adopt(
        ME,
        [
            heard("w1", (4, 1), entry("x", Hold.OWNER, "w1")),
            heard("w2", (3, 7), entry("a", Hold.STANDBY, "w0"), entry("y", Hold.OWNER, "w2")),
        ],
    )
    assert adoption.share is not None
    assert (adoption.share.version, adoption.share.entries) == ((4, 1), ())
    assert set(adoption.owners) == {OwnerOf(group("x"), "w1"), OwnerOf(group("y"), "w2")}


def test_epochs_below_the_highest_seen_do_not_count() -> None:
    """Neither for the share nor for owners; who is there is known all the same."""
    asker = Asker("f", "w0", "i0", 5, NOTHING)
    adoption = adopt(asker, [heard("w1", (4, 9), entry("a", Hold.STANDBY, "w0"))])
    assert (adoption.share, adoption.owners) == (None, ())
    assert set(adoption.peers) == {"w1"}


def test_what_was_heard_before_stays_until_somebody_knows_better() -> None:
    """The stand-by of pool a does not answer any more, pool b has gone to w2 by a later map."""
    before = heard("w0", (3, 7), entry("a", Hold.OWNER, "w0"), entry("b", Hold.OWNER, "w0")).holds
    asker = Asker("f", "w0", "i0", 3, before)
    assert adopt(asker, []).share == Share("f", "w0", "i0", EpochVersion(3, 7), before.entries)
    adoption = adopt(asker, [heard("w2", (3, 9), entry("b", Hold.OWNER, "w2"))])
    assert adoption.share is not None
    assert adoption.share.version == (3, 9)
    assert adoption.share.entries == (entry("a", Hold.OWNER, "w0"),)
    assert adoption.owners == (OwnerOf(group("b"), "w2"),)


def test_a_young_fleet_tells_nothing() -> None:
    """Peers that were told nothing yet are no reason to be ready."""
    assert adopt(ME, [heard("w1", (0, 0)), heard("w2", (0, 0))]).share is None
    assert adopt(ME, []).share is None


def test_being_told_that_one_holds_nothing_is_being_told() -> None:
    """A worker without groups is ready."""
    adoption = adopt(ME, [heard("w1", (2, 3), entry("x", Hold.OWNER, "w1"))])
    assert adoption.share is not None
    assert (adoption.share.version, adoption.share.entries) == ((2, 3), ())


def test_other_fleets_and_oneself_are_not_listened_to() -> None:
    """An address of ours may be among those that were asked."""
    adoption = adopt(
        ME,
        [
            heard("w0", (9, 9), entry("a", Hold.OWNER, "w0")),
            heard("w7", (9, 9), entry("a", Hold.STANDBY, "w0"), fleet="g"),
        ],
    )
    assert (adoption.share, adoption.owners, adoption.peers) == (None, (), {})


def test_the_owners_own_word_settles_equal_versions() -> None:
    """A group in motion is named by the gainer and by the owner."""
    adoption = adopt(
        ME,
        [
            heard("w1", (3, 7), entry("a", Hold.OWNER, "w1")),
            heard("w2", (3, 7), entry("a", Hold.OPENING, "w0")),
        ],
    )
    assert adoption.share is not None
    assert adoption.share.entries == ()


def test_messages_between_peers_survive_the_wire() -> None:
    """Both kinds, and nothing else is understood."""
    ask = AskHolds("f", "w0")
    assert HOLDS.question(HOLDS.encode(ask)) == ask
    holds = heard("w1", (3, 7), entry("a", Hold.STANDBY, "w0"), entry("b", Hold.OWNER, None)).holds
    assert HOLDS.answer(HOLDS.encode(holds)) == holds
    for data in (b"", b"\xc1", HOLDS.encode(ask), HOLDS.encode(AskHolds("f", "w", format=9))):
        with pytest.raises(FormatError):
            HOLDS.answer(data)
    with pytest.raises(FormatError, match="format 9"):
        HOLDS.question(HOLDS.encode(AskHolds("f", "w", format=9)))

"""What stand-bys are told of the prefix index."""

import random
from collections.abc import Callable

import pytest

from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.index import identity
from epp_worker.scheduling.prefix.slot import PrefixSlot
from tests.prefix_pools import endpoint, endpoints

CAPACITY = 40


def slot_of(pods: list[EndpointState]) -> PrefixSlot:
    slot = PrefixSlot(Budget())
    slot.listed(pods)
    return slot


def content(slot: PrefixSlot) -> dict[str, list[int]]:
    """Blocks by endpoint, in order of use."""
    return {each.key: list(each.recency.blocks()) for each in slot.index.holdings()}


def conversation(rng: random.Random) -> Callable[[], list[int]]:
    """Chains that share beginnings."""
    known: list[list[int]] = [[]]

    def turn() -> list[int]:
        before = rng.choice(known[-20:])
        chain = before[: rng.randrange(len(before) + 1)]
        chain += [rng.getrandbits(64) for _ in range(rng.randrange(1, 6))]
        known.append(chain)
        return chain

    return turn


def drained(slot: PrefixSlot, limit: int = 200) -> list[bytes]:
    pieces = []
    while (piece := slot.drain_delta(limit)) is not None:
        pieces.append(piece)
    return pieces


@pytest.mark.parametrize("seed", range(5))
def test_a_follower_has_the_same_in_the_same_order(seed: int) -> None:
    """A snapshot in small pieces, then changes: equal contents, equal order of use, at a capacity
    that is full all the time."""
    rng = random.Random(seed)
    pods, turn = endpoints(3), conversation(rng)
    owner, follower = slot_of(pods), slot_of(pods)
    for _ in range(60):
        owner.index.add(rng.choice(pods), turn(), CAPACITY)
    owner.record(lambda: None)
    for piece in owner.snapshot(100):
        follower.apply("life", piece, relay=False)
    assert content(follower) == content(owner)
    for _ in range(20):
        for _ in range(5):
            owner.index.add(rng.choice(pods), turn(), CAPACITY)
        for piece in drained(owner):
            follower.apply("life", piece, relay=False)
        assert content(follower) == content(owner)
    assert [each.capacity for each in follower.index.holdings()] == [CAPACITY] * 3


def test_a_piece_that_is_read_twice_changes_nothing() -> None:
    """Nor does a whole snapshot."""
    rng = random.Random(1)
    pods, turn = endpoints(2), conversation(rng)
    owner, follower = slot_of(pods), slot_of(pods)
    for _ in range(20):
        owner.index.add(rng.choice(pods), turn(), 1000)
    pieces = list(owner.snapshot(300))
    for piece in (*pieces, *pieces):
        follower.apply("life", piece, relay=False)
    assert content(follower) == content(owner)
    assert len(follower.index) == len(owner.index)


def test_news_does_not_run_in_circles() -> None:
    """Two workers feed each other: what the draining one tells is told on once, and what comes back
    is told no more."""
    pods = endpoints(1)
    owner, draining, standby = slot_of(pods), slot_of(pods), slot_of(pods)
    for each in (owner, draining):
        each.record(lambda: None)
    draining.index.add(pods[0], [1, 2, 3], 100)
    for piece in drained(draining):
        owner.apply("draining", piece, relay=True)
    told = drained(owner)
    for piece in told:
        standby.apply("owner", piece, relay=False)
        draining.apply("owner", piece, relay=False)
    assert content(standby) == content(draining) == content(owner)
    assert len(told) == 1
    for piece in told:
        owner.apply("draining", piece, relay=True)
    assert drained(draining) == drained(owner) == []


def test_a_path_that_begins_amid_what_is_here() -> None:
    """Only what goes beyond it is taken; nothing is counted twice."""
    pods = endpoints(1)
    owner, follower = slot_of(pods), slot_of(pods)
    follower.index.add(pods[0], [1, 2, 3], 100)
    owner.index.add(pods[0], [1, 2, 3, 4, 5], 100)
    owner.index.add(pods[0], [1, 9], 100)
    for piece in owner.snapshot(1000):
        follower.apply("life", piece, relay=False)
    assert sorted(*content(follower).values()) == [1, 2, 3, 4, 5, 9]
    assert len(follower.index) == 6


def test_changed_is_called_once_until_all_is_taken() -> None:
    """The publisher is woken by the first change after each drain."""
    pods = endpoints(1)
    slot = slot_of(pods)
    calls: list[int] = []
    slot.record(lambda: calls.append(1))
    slot.index.add(pods[0], [1], 100)
    slot.index.add(pods[0], [2], 100)
    assert len(calls) == 1
    assert len(drained(slot)) == 1
    slot.index.add(pods[0], [3], 100)
    assert len(calls) == 2
    slot.record(None)
    slot.index.add(pods[0], [4], 100)
    assert drained(slot) == []


def test_what_waits_is_bounded() -> None:
    """A prompt used ten thousand times before anybody asks is told once."""
    pods = endpoints(1)
    slot = slot_of(pods)
    slot.record(lambda: None)
    for _ in range(10_000):
        slot.index.add(pods[0], [1, 2, 3], 100)
    assert len(slot._journal) <= 66
    (piece,) = drained(slot)
    assert len(piece) < 100


def test_endpoints_that_are_not_listed_yet_are_remembered() -> None:
    """A follower may hear of a pod before its own list has it; when it is listed, it is known. What
    is not listed then either is forgotten, and what departed is not brought back."""
    pods = endpoints(2)
    owner, follower = slot_of(pods), slot_of([])
    for pod in pods:
        owner.index.add(pod, [1, 2], 100)
    pieces = list(owner.snapshot(1000))
    for piece in pieces:
        follower.apply("life", piece, relay=False)
    follower.listed(pods[:1])
    assert content(follower) == {identity(pods[0].endpoint): [1, 2]}
    for piece in pieces:
        follower.apply("life", piece, relay=False)
    assert list(content(follower)) == [identity(pods[0].endpoint)]
    follower.listed([endpoint(0, uid="next")])
    assert content(follower) == {"next/0/10.0.0.0:8000": []}


def test_departed_endpoints_are_told_no_more() -> None:
    """What waited for a follower goes with its endpoint."""
    pods = endpoints(2)
    slot = slot_of(pods)
    slot.record(lambda: None)
    slot.index.add(pods[0], [1], 100)
    slot.listed(pods[1:])
    assert drained(slot) == []
    assert list(slot.snapshot(100)) == []


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91\x93\xa1k\x05\x91\xc4\x03abc", b"\x91\x01"])
def test_unreadable_pieces_are_refused(data: bytes) -> None:
    """As the contract of slots says."""
    with pytest.raises(ValueError, match="unreadable piece of prefix"):
        slot_of([]).apply("life", data, relay=False)

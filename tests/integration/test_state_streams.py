"""Stand-bys that follow: two and three real workers, each with its ports, led by the test."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from epp_worker.handover.publisher import BATCH_SECONDS
from epp_worker.scheduling.state_slots import SeenTable
from fleet.model import Hold
from tests.prefix_standin import NAME, PrefixStandIn, full
from tests.state_fleet import Fleet, fleet_of, write_pool
from tests.worker_inprocess import DEADLINE, Running, until

A, B, C = "worker-a", "worker-b", "worker-c"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    write_pool(tmp_path / "m", "pool-a")
    async with fleet_of(tmp_path / "m", A, B, C) as running:
        yield running


def now() -> float:
    return asyncio.get_running_loop().time()


async def follow(fleet: Fleet, owner: str = A, follower: str = B) -> None:
    """Owner and stand-by; returns when the snapshot is here."""
    fleet.hold(owner, Hold.OWNER, owner, "pool-a")
    await until(lambda: fleet.group(owner).serving, "owner serves")
    fleet.hold(follower, Hold.STANDBY, owner, "pool-a")
    await until(lambda: fleet.group(follower).serving, "stand-by lists pods")
    await until(lambda: applied(fleet.running[follower]) > 0, "snapshot")


def applied(running: Running) -> int:
    return running.worker.figures().state.snapshots_applied


async def test_a_promoted_stand_by_picks_by_what_it_was_told(fleet: Fleet) -> None:
    """Killed owner: no scrape has been made by the new one, and its picks go to the shorter queue
    from the first; it begins to scrape with the promotion, not before."""
    await follow(fleet)
    fleet.scraped(A, 1, waiting=9.0)
    fleet.scraped(A, 2, waiting=1.0)
    await until(lambda: fleet.endpoint(B, 2).waiting == 1.0, "metrics told")
    assert fleet.running[B].scraper.scraped == []
    fleet.introduce(A)
    fleet.hold(B, Hold.OWNER, B, "pool-a")
    assert [fleet.pick(B).address for _ in range(3)] == ["10.0.0.2:8000"] * 3
    assert len(fleet.running[B].scraper.scraped) == 1


async def test_inflight_of_the_dead_is_dropped_that_of_the_living_is_kept(fleet: Fleet) -> None:
    """A drained to B and still has 2 requests open; B owns and has 3; the stand-by C knows of 5.
    B dies: C, promoted, counts A's 2."""
    await follow(fleet, owner=A, follower=B)
    for _ in range(2):
        fleet.pick(A)
    fleet.hold(B, Hold.OWNER, B, "pool-a")
    fleet.hold(A, Hold.DRAINING, B, "pool-a")
    for _ in range(3):
        fleet.pick(B)
    fleet.hold(C, Hold.STANDBY, B, "pool-a")
    await until(lambda: inflight(fleet, B) == 5, "owner knows of those of the draining one")
    await until(lambda: inflight(fleet, C) == 5, "stand-by knows all")
    await until(lambda: inflight(fleet, A) == 5, "the draining one is told, too")
    fleet.introduce(B)
    assert inflight(fleet, C) == 2
    fleet.hold(C, Hold.OWNER, C, "pool-a")
    fleet.hold(A, Hold.DRAINING, C, "pool-a")
    fleet.pick(A)
    await until(lambda: inflight(fleet, C) == 3, "the living one goes on telling")


def inflight(fleet: Fleet, worker: str) -> int:
    return sum(state.inflight for state in fleet.pool(worker).endpoints())


async def test_released_requests_are_told(fleet: Fleet) -> None:
    """Counts follow up and down, and none is left when all is over."""
    await follow(fleet)
    picks = [fleet.pick(A) for _ in range(7)]
    await until(lambda: inflight(fleet, B) == 7, "seven open")
    for pick in picks:
        pick.release()
    await until(lambda: inflight(fleet, B) == 0, "none open")
    assert fleet.pool(B).inflight() == {"10.0.0.1:8000": 0, "10.0.0.2:8000": 0}


async def test_a_former_owner_that_stands_by_still_tells_of_its_requests(fleet: Fleet) -> None:
    """It has requests open from when it owned the group; the owner hears of them, and of each end,
    and the two do not tell each other what they know already."""
    await follow(fleet)
    pick = fleet.pick(A)
    fleet.hold(B, Hold.OWNER, B, "pool-a")
    fleet.hold(A, Hold.STANDBY, B, "pool-a")
    fleet.pick(B)
    await until(lambda: inflight(fleet, B) == 2, "told by the former owner")
    await until(lambda: inflight(fleet, A) == 2, "told by the owner")
    await silence(fleet, A, B)
    pick.release()
    await until(lambda: inflight(fleet, B) == 1, "one is over")


async def silence(fleet: Fleet, *workers: str) -> None:
    """Wait until nothing is sent for six batches."""

    def sent() -> list[int]:
        return [fleet.running[one].worker.figures().state.sent_bytes for one in workers]

    async with asyncio.timeout(DEADLINE):
        before: list[int] = []
        while (bytes_now := sent()) != before:
            before = bytes_now
            await asyncio.sleep(6 * BATCH_SECONDS)


async def test_a_new_owner_is_followed_instead(fleet: Fleet) -> None:
    """The stand-by turns to the owner that its share names, and takes nothing more of the old."""
    await follow(fleet)
    fleet.scraped(A, 1, waiting=5.0)
    await until(lambda: fleet.endpoint(B, 1).waiting == 5.0, "told by A")
    fleet.hold(C, Hold.OWNER, C, "pool-a")
    await until(lambda: fleet.group(C).serving, "C serves")
    fleet.hold(B, Hold.STANDBY, C, "pool-a")
    fleet.scraped(C, 1, waiting=7.0)
    await until(lambda: fleet.endpoint(B, 1).waiting == 7.0, "told by C")
    await until(lambda: fleet.running[A].worker.figures().state.followers == 0, "A let go")
    fleet.scraped(A, 1, waiting=6.0)
    fleet.scraped(C, 2, waiting=3.0)
    await until(lambda: fleet.endpoint(B, 2).waiting == 3.0, "still told by C")
    assert fleet.endpoint(B, 1).waiting == 7.0


async def test_adapters_and_sessions_are_told(fleet: Fleet) -> None:
    """LoRA memory and session affinity, from before and after the stand-by came."""
    fleet.hold(A, Hold.OWNER, A, "pool-a")
    await until(lambda: fleet.group(A).serving, "owner serves")
    note(fleet, A, "lora", "sql", 1)
    await follow(fleet)
    note(fleet, A, "affinity", "session-1", 2)
    await until(lambda: seen(fleet, B, "lora", "sql") == ["10.0.0.1:8000"], "LoRA memory")
    await until(
        lambda: seen(fleet, B, "affinity", "session-1") == ["10.0.0.2:8000"], "session affinity"
    )


def note(fleet: Fleet, worker: str, table: str, key: str, number: int) -> None:
    slot = fleet.pool(worker).slot(table)
    assert isinstance(slot, SeenTable)
    slot.note(key, f"10.0.0.{number}:8000")


def seen(fleet: Fleet, worker: str, table: str, key: str) -> list[str]:
    slot = fleet.pool(worker).slot(table)
    assert isinstance(slot, SeenTable)
    return sorted(slot.at(key))


async def test_a_whole_prefix_index_is_told(fleet: Fleet) -> None:
    """250,000 entries, over the wire; what is added afterwards follows as a change, and a pick made
    meanwhile is told of before the snapshot is complete."""
    fleet.hold(B, Hold.STANDBY, A, "pool-a")
    copy = fleet.pool(B).slots[NAME] = PrefixStandIn()
    fleet.hold(A, Hold.OWNER, A, "pool-a")
    index = fleet.pool(A).slots[NAME] = full()
    await until(lambda: fleet.group(A).serving and fleet.group(B).serving, "served")
    fleet.pick(A)
    await until(lambda: inflight(fleet, B) == 1, "pick told")
    await until(lambda: applied(fleet.running[B]) == 1, "snapshot")
    assert copy.blocks == index.blocks
    index.add("10.0.0.1:8000", [7])
    await until(lambda: 7 in copy.blocks["10.0.0.1:8000"], "change")


async def test_a_broken_stream_is_dialled_again(fleet: Fleet) -> None:
    """The owner's port breaks every connection: a moment later the stand-by is told again."""
    await follow(fleet)
    channel = fleet.running[B].worker.peers.channel(A)
    assert channel is not None
    before = applied(fleet.running[B])
    incarnation = fleet.running[A].worker.holdings.incarnation
    fleet.running[A].worker.holdings.incarnation = "another"
    fleet.introduce()
    fleet.running[A].worker.holdings.incarnation = incarnation
    fleet.introduce()
    await until(lambda: applied(fleet.running[B]) > before, "a new snapshot")
    fleet.scraped(A, 1, waiting=4.0)
    await until(lambda: fleet.endpoint(B, 1).waiting == 4.0, "told again")


async def test_an_owner_that_does_not_hold_the_group_yet_is_waited_for(fleet: Fleet) -> None:
    """The stand-by came first: its snapshot comes when the owner has the group."""
    fleet.hold(B, Hold.STANDBY, A, "pool-a")
    await until(lambda: fleet.group(B).serving, "stand-by lists pods")
    await until(lambda: fleet.running[A].worker.figures().state.followers == 1, "follows")
    assert applied(fleet.running[B]) == 0
    fleet.hold(A, Hold.OWNER, A, "pool-a")
    await until(lambda: applied(fleet.running[B]) == 1, "snapshot")
    fleet.scraped(A, 1, waiting=4.0)
    await until(lambda: fleet.endpoint(B, 1).waiting == 4.0, "told")


async def test_nothing_is_sent_while_nothing_happens(fleet: Fleet) -> None:
    """Scrapes that find what was found before are no news."""
    await follow(fleet)
    fleet.scraped(A, 1, waiting=4.0)
    await until(lambda: fleet.endpoint(B, 1).waiting == 4.0, "told")
    sent = fleet.running[A].worker.figures().state.sent_bytes
    for _ in range(5):
        fleet.scraped(A, 1, waiting=4.0)
        await asyncio.sleep(0.03)
    assert fleet.running[A].worker.figures().state.sent_bytes == sent


async def test_an_opening_group_is_synced_when_the_snapshot_is_here(fleet: Fleet) -> None:
    """Planned move: pods listed, endpoints scraped, and the owner's state taken over."""
    fleet.hold(A, Hold.OWNER, A, "pool-a")
    await until(lambda: fleet.group(A).serving, "owner serves")
    fleet.pick(A)
    fleet.hold(B, Hold.OPENING, A, "pool-a")
    assert fleet.group(B).awaits_state
    await until(lambda: fleet.group(B).synced(), "synced")
    assert applied(fleet.running[B]) == 1
    assert inflight(fleet, B) == 1


async def test_a_move_does_not_hang_on_an_unreachable_owner(fleet: Fleet) -> None:
    """Nobody answers at the owner's address: the group that opens is synced after 2 s."""
    fleet.introduce(internal={A: "127.0.0.1:1"})
    began = now()
    fleet.hold(B, Hold.OPENING, A, "pool-a")
    await until(lambda: fleet.group(B).scraped, "scraped")
    assert not fleet.group(B).synced()
    await until(lambda: fleet.group(B).synced(), "synced")
    assert now() - began >= 2.0


async def test_a_move_does_not_wait_for_a_dead_owner(fleet: Fleet) -> None:
    """An owner that the leader does not name among the living has no state to give."""
    fleet.introduce(A)
    fleet.hold(B, Hold.OPENING, A, "pool-a")
    assert not fleet.group(B).awaits_state
    await until(lambda: fleet.group(B).synced(), "synced")


async def test_a_move_is_freed_when_its_owner_dies(fleet: Fleet) -> None:
    """The owner was waited for, and is dead now."""
    fleet.introduce(internal={A: "127.0.0.1:1"})
    fleet.hold(B, Hold.OPENING, A, "pool-a")
    assert fleet.group(B).awaits_state
    fleet.introduce(A)
    assert not fleet.group(B).awaits_state

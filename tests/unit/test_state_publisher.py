"""What followers are sent: snapshots, batches, bounds; and what it costs when nobody follows."""

import pytest

from epp_worker.handover.outbox import CHUNK_BYTES, GROUPS_AT_ONCE
from epp_worker.handover.publisher import BATCH_SECONDS
from epp_worker.handover.rows import PIECE_BYTES
from epp_worker.scheduling.state_merge import hear_counts, hear_metrics
from epp_worker.scheduling.state_slots import LORA, SeenTable
from fleet.control.state_messages import Feed
from fleet.model import GroupKey
from tests.prefix_standin import ENDPOINTS, ENTRIES, NAME, PrefixStandIn, full
from tests.state_pools import ORIGIN, Estate, counts_in, rows_in

ONE, TWO = "10.0.0.1:8000", "10.0.0.2:8000"


@pytest.fixture
def estate() -> Estate:
    return Estate()


def sizes(feeds: list[Feed]) -> list[int]:
    return [sum(map(len, feed.rows)) for feed in feeds]


def test_a_snapshot_then_what_changes(estate: Estate) -> None:
    """First all that is known, then present values of what a batch touched."""
    key = estate.add("a")
    estate.pick(key)
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    (feed,) = estate.sent(outbox)
    assert [start.group for start in feed.starts] == [key] == list(feed.complete)
    assert sorted(counts_in(feed).values()) == [0, 1]
    estate.pick(key)
    assert estate.sent(outbox) == []
    estate.time.move(BATCH_SECONDS)
    (feed,) = estate.sent(outbox)
    assert (feed.starts, feed.complete) == ((), ())
    assert list(counts_in(feed).values()) == [1]


def test_a_batch_holds_each_endpoint_once(estate: Estate) -> None:
    """1,000 picks and ends on two endpoints within 50 ms are one row with two counts."""
    key = estate.add("a")
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    estate.sent(outbox)
    for _ in range(1000):
        estate.pick(key).release()
    last = estate.pick(key)
    estate.time.move(BATCH_SECONDS)
    (feed,) = estate.sent(outbox)
    (rows,) = rows_in(feed)
    assert rows.counts[ORIGIN] == {ONE: 0, TWO: 0} | {last.address: 1}


def test_nothing_is_kept_without_followers(estate: Estate) -> None:
    """No timer, no list; so too when the last follower has gone."""
    key = estate.add("a")
    estate.pick(key)
    assert estate.time.due == []
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    estate.publisher.remove(outbox, (key,))
    estate.pick(key)
    assert estate.time.due == []
    assert all(state.touched is None for state in estate.pool(key).endpoints())


def test_idle_groups_cost_nothing(estate: Estate) -> None:
    """2,000 groups are followed; one pick wakes for one row, and then there is no timer."""
    keys = [estate.add(f"pool-{number}") for number in range(2000)]
    outbox = estate.outbox()
    for key in keys:
        estate.publisher.add(outbox, key)
    feeds = estate.sent(outbox)
    assert sum(len(feed.complete) for feed in feeds) == 2000
    assert max(len(feed.starts) for feed in feeds) <= GROUPS_AT_ONCE
    assert estate.time.due == []
    estate.pick(keys[7])
    estate.time.move(1.0)
    assert len(rows_in(*estate.sent(outbox))) == 1
    assert estate.time.due == []


def test_a_batch_is_encoded_once_for_all_followers(estate: Estate) -> None:
    """Ten followers get the very same bytes."""
    key = estate.add("a")
    outboxes = [estate.outbox() for _ in range(10)]
    for outbox in outboxes:
        estate.publisher.add(outbox, key)
        estate.sent(outbox)
    estate.pick(key)
    estate.time.move(BATCH_SECONDS)
    rows = [feed.rows[0] for outbox in outboxes for feed in estate.sent(outbox)]
    assert len(rows) == 10
    assert all(row is rows[0] for row in rows)


def test_a_follower_that_lags_is_snapshotted_anew(estate: Estate) -> None:
    """It takes nothing for an hour: what waits for it never exceeds the bound, and its next
    message begins again. A second follower is not touched by that."""
    key, other = estate.add("a"), estate.add("b")
    slow, quick = estate.outbox(pending_bytes=1000), estate.outbox()
    for outbox in (slow, quick):
        estate.publisher.add(outbox, key)
    estate.publisher.add(slow, other)
    estate.sent(slow)
    estate.sent(quick)
    picks = []
    for _ in range(200):
        picks.append(estate.pick(key))
        estate.time.move(BATCH_SECONDS)
        assert slow.pending_bytes() <= 1000
        estate.sent(quick)
    assert estate.counts.snapshots_lagged == 1
    feeds = estate.sent(slow)
    assert [start.group for feed in feeds for start in feed.starts] == [key]
    assert sum(counts_in(*feeds).values()) == 200


def test_changes_of_a_group_whose_snapshot_has_not_begun_are_not_kept(estate: Estate) -> None:
    """The snapshot will have them."""
    key = estate.add("a")
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    estate.pick(key)
    estate.time.move(BATCH_SECONDS)
    assert outbox.pending_bytes() == 0
    assert sum(counts_in(*estate.sent(outbox)).values()) == 1


def test_a_group_that_is_not_here_is_absent_until_it_comes(estate: Estate) -> None:
    """The follower is told so, and gets the snapshot when the group is opened."""
    key = GroupKey("ns", "a-epp", 9002)
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    (feed,) = estate.sent(outbox)
    assert (feed.absent, feed.starts) == ((key,), ())
    estate.add("a")
    estate.publisher.group_changed(key)
    (feed,) = estate.sent(outbox)
    assert feed.complete == (key,)
    del estate.groups[key]
    estate.publisher.group_changed(key)
    (feed,) = estate.sent(outbox)
    assert feed.absent == (key,)


def test_other_pools_mean_another_snapshot_with_other_numbers(estate: Estate) -> None:
    """A pool was deleted and made again under its name."""
    key = estate.add("a")
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    (first,) = estate.sent(outbox)
    estate.publisher.group_changed(key)
    assert estate.sent(outbox) == []
    estate.add("a")
    estate.publisher.group_changed(key)
    (second,) = estate.sent(outbox)
    assert first.starts[0].pools[0].number != second.starts[0].pools[0].number


def test_followers_hear_of_others_requests_the_owner_hears_of_ours(estate: Estate) -> None:
    """Down goes all that is known. Up, from a worker that owned the group before, goes only what
    it counts itself: the owner scrapes, and knows the rest."""
    key = estate.add("a")
    pool = estate.pool(key)
    first = next(iter(pool.endpoints()))
    first.scraped(waiting=3.0, running=0.0, kv=0.5, at=999.0, inflight=0)
    hear_counts(pool, "b", "life-b", {ONE: 4})
    down, up = estate.outbox(), estate.outbox(whole=False)
    for outbox in (down, up):
        estate.publisher.add(outbox, key)
    (rows,) = rows_in(*estate.sent(down))
    assert rows.counts == {ORIGIN: {ONE: 0, TWO: 0}, "life-b": {ONE: 4}}
    metrics = rows.metrics[ONE]
    assert (metrics.waiting, metrics.kv, metrics.age_ms) == (3.0, 0.5, 1000)
    (rows,) = rows_in(*estate.sent(up))
    assert (rows.counts, rows.metrics) == ({ORIGIN: {ONE: 0, TWO: 0}}, {})


def test_what_the_owner_told_is_not_told_back(estate: Estate) -> None:
    """Its own counts and metrics are no news to it; a pick of ours is."""
    key = estate.add("a")
    up = estate.outbox(whole=False)
    estate.publisher.add(up, key)
    estate.sent(up)
    pool = estate.pool(key)
    estate.pick(key).release()
    estate.time.move(BATCH_SECONDS)
    estate.sent(up)
    hear_counts(pool, "b", "life-b", {ONE: 1, TWO: 1})
    hear_metrics(pool, {}, scrapes=False)
    estate.time.move(BATCH_SECONDS)
    picked = estate.pick(key)
    estate.time.move(BATCH_SECONDS)
    assert counts_in(*estate.sent(up))[picked.address] == 1
    hear_counts(pool, "b", "life-b", {picked.address: 5})
    estate.time.move(BATCH_SECONDS)
    assert estate.sent(up) == []


def test_a_slot_that_is_made_later_is_followed_too(estate: Estate) -> None:
    """LoRA memory begins when the first adapter is seen."""
    key = estate.add("a")
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    estate.sent(outbox)
    slot = estate.pool(key).slot(LORA)
    assert isinstance(slot, SeenTable)
    slot.note("sql", ONE)
    estate.time.move(BATCH_SECONDS)
    (rows,) = rows_in(*estate.sent(outbox))
    assert [name for name, _ in rows.slots] == [LORA]


def test_a_prefix_index_is_sent_in_bounded_chunks(estate: Estate) -> None:
    """8 endpoints with 31,250 entries each: 2 MB in messages of some 32 kB, each made only when
    the one before is taken; what changes meanwhile goes in between."""
    key = estate.add("a", ENDPOINTS)
    index = estate.pool(key).slots[NAME] = full()
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    feeds: list[Feed] = []
    copy = PrefixStandIn()
    while (feed := outbox.next(estate.publisher)) is not None:
        feeds.append(feed)
        for rows in rows_in(feed):
            for _, piece in rows.slots:
                copy.apply("life", piece, relay=False)
        if len(feeds) == 20:
            index.add(ONE, range(1000))
            estate.pick(key)
            estate.time.move(BATCH_SECONDS)
    assert max(sizes(feeds)) <= CHUNK_BYTES + PIECE_BYTES + 1024
    assert 2_000_000 <= sum(sizes(feeds)) <= 2_200_000
    assert [len(feed.complete) for feed in feeds].index(1) == len(feeds) - 1
    assert rows_in(feeds[20])[0].counts
    assert {each: set(blocks) for each, blocks in copy.blocks.items()} == {
        each: set(blocks) for each, blocks in index.blocks.items()
    }
    assert len(copy.blocks[ONE]) == ENTRIES


def test_a_prefix_indexs_changes_are_bounded_per_batch(estate: Estate) -> None:
    """A storm of 50,000 new blocks (400 kB) in one batch goes out over several."""
    key = estate.add("a", ENDPOINTS)
    index = estate.pool(key).slots[NAME] = PrefixStandIn()
    outbox = estate.outbox()
    estate.publisher.add(outbox, key)
    estate.sent(outbox)
    for number in range(2):
        index.add(f"10.0.0.{number + 1}:8000", range(25_000))
    waiting = []
    for _ in range(9):
        estate.time.move(BATCH_SECONDS)
        waiting.append(sum(sizes(estate.sent(outbox))))
    assert max(waiting) <= 4 * (PIECE_BYTES + 1024)
    assert 400_000 <= sum(waiting) <= 420_000
    assert estate.time.due == []

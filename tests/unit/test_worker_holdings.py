"""Holds carried out: pods, states, scrapes, and what the leader is told."""

import asyncio
import random

import pytest

from epp_worker.catalogue import Catalogue
from epp_worker.holdings import Holdings
from epp_worker.holds import Ruling
from fleet.control.messages import HoldReport
from fleet.model import EpochVersion, Hold
from fleet.sources.contract import Kind
from tests.worker_fakes import (
    FakeScraper,
    FakeSource,
    Tasks,
    entry_of,
    group_of,
    pod_of,
    pool_of,
    settle,
    share_with,
)

pytestmark = pytest.mark.looptime
QUIET = 30.0


class Bench:
    """Holdings with neighbours that the test moves."""

    def __init__(self) -> None:
        self.source = FakeSource()
        self.scraper = FakeScraper()
        self.tasks = Tasks()
        self.catalogue = Catalogue(self.source, self.tasks.spawn)
        loop = asyncio.get_running_loop()
        self.holdings = Holdings(
            self.catalogue,
            self.scraper,
            self.tasks.spawn,
            fleet="f",
            worker="w",
            incarnation="i1",
            quiet_seconds=QUIET,
            now=loop.time,
            rng=random.Random(1),
        )

    async def start(self) -> "Bench":
        await self.catalogue.start(self.holdings.pools_changed)
        await settle()
        return self

    def report(self, name: str) -> HoldReport:
        (report,) = [one for one in self.holdings.reports() if one.group == group_of(name)]
        return report

    def addresses(self, name: str) -> list[str]:
        group = self.holdings.get(group_of(name))
        assert group is not None
        return [one.address for state in group.states.values() for one in state.endpoints()]


async def bench(*names: str) -> Bench:
    made = Bench()
    for name in names:
        made.source.put(pool_of(name))
        made.source.put(pod_of(f"{name}-0", name, "10.0.0.1"))
    return await made.start()


async def test_a_group_opens_while_its_pods_are_being_listed() -> None:
    """Not before it is held, not when the list is here, and not when its last pool is gone."""
    made = await bench("a")
    made.source.lists.remove(Kind.POD)
    assert not made.holdings.opens("a.ns.svc:9002")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    assert made.holdings.opens("a.ns.svc:9002")
    assert not made.holdings.opens("b.ns.svc:9002")
    assert not made.holdings.opens("10.0.0.1:9002")
    made.source.list(made.source.watches[-1])
    await settle()
    assert not made.holdings.opens("a.ns.svc:9002")
    other = await bench("a")
    other.source.lists.remove(Kind.POD)
    other.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    other.source.remove(Kind.POOL, "ns", "a")
    await settle()
    assert not other.holdings.opens("a.ns.svc:9002")


async def test_a_gainer_acknowledges_after_list_and_first_scrape() -> None:
    """Opening: pods listed, each endpoint scraped once, then synced; not before."""
    made = await bench("a")
    made.source.lists.remove(Kind.POD)
    made.scraper.gate.clear()
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OPENING, "v")))
    await settle()
    assert not made.report("a").synced
    assert made.scraper.firsts == []
    made.source.list(made.source.watches[-1])
    await settle()
    assert made.addresses("a") == ["10.0.0.1:8000"]
    assert made.scraper.firsts == ["a/1"]
    assert not made.report("a").synced
    made.scraper.gate.set()
    await settle()
    assert made.report("a") == HoldReport(group_of("a"), Hold.OPENING, synced=True)


async def test_a_stand_by_knows_its_pods_and_scrapes_nothing_until_promoted() -> None:
    """Promoted, it scrapes at once; demoted, it stops."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.STANDBY, "v")))
    await settle()
    assert made.report("a").synced
    assert (made.addresses("a"), made.scraper.scraped) == (["10.0.0.1:8000"], [])
    made.holdings.apply(share_with(2, entry_of(pool_of("a"), Hold.OWNER)))
    await settle()
    assert (made.scraper.scraped, made.scraper.firsts) == (["a/1"], ["a/1"])
    assert made.report("a").synced
    made.holdings.apply(share_with(3, entry_of(pool_of("a"), Hold.STANDBY, "v")))
    assert made.scraper.scraped == []


async def test_a_pool_that_is_not_here_yet_is_not_acknowledged() -> None:
    """The leader's source may be ahead of ours; ours catches up without being told."""
    made = await bench()
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    await settle()
    assert not made.report("a").synced
    made.source.put(pool_of("a"))
    await settle()
    assert made.report("a").synced


async def test_another_uid_is_another_pool() -> None:
    """New state, scraped anew; the old one's is gone."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    await settle()
    group = made.holdings.get(group_of("a"))
    assert group is not None
    (old,) = group.states.values()
    made.source.put(pool_of("a", uid="2"))
    await settle()
    (new,) = group.states.values()
    assert new is not old
    assert group.picker.pools() == (new,)
    assert made.scraper.scraped == ["a/2"]
    assert not made.report("a").synced, "the share still names the other life"


async def test_pods_and_ports_reach_the_endpoints_without_a_coordinator() -> None:
    """A pod that comes, a port that changes, a pod that goes."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    await settle()
    made.source.put(pod_of("a-1", "a", "10.0.0.2"))
    await settle()
    assert made.addresses("a") == ["10.0.0.1:8000", "10.0.0.2:8000"]
    made.source.put(pool_of("a", port=9000))
    await settle()
    assert made.addresses("a") == ["10.0.0.1:9000", "10.0.0.2:9000"]
    made.source.remove(Kind.POD, "ns", "a-0")
    await settle()
    assert made.addresses("a") == ["10.0.0.2:9000"]
    assert made.scraper.refreshed == ["a/1"] * 3


async def test_a_deleted_pool_is_served_no_more() -> None:
    """Its group stays held: the leader decides about that."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    await settle()
    made.source.remove(Kind.POOL, "ns", "a")
    await settle()
    group = made.holdings.get(group_of("a"))
    assert group is not None
    assert not group.serving
    assert made.scraper.scraped == []


async def test_pods_are_watched_only_where_a_group_is_held() -> None:
    """One watch per namespace, ended with the last group there."""
    made = await bench("a", "b")
    everywhere = [watch.kind for watch in made.source.watches]
    assert everywhere == [Kind.POOL, Kind.OBJECTIVE, Kind.REWRITE]
    both = (entry_of(pool_of("a"), Hold.STANDBY, "v"), entry_of(pool_of("b"), Hold.STANDBY, "v"))
    made.holdings.apply(share_with(1, *both))
    assert [watch.namespace for watch in made.source.watches[3:]] == ["ns"]
    made.holdings.apply(share_with(2, both[0]))
    assert len(made.source.watches) == 4
    made.holdings.apply(share_with(3))
    assert len(made.source.watches) == 3


async def test_a_lower_epoch_changes_nothing_whatever_it_says() -> None:
    """Refused for good once a higher one was seen, from a hello too."""
    made = await bench("a")
    owner = entry_of(pool_of("a"), Hold.OWNER)
    assert made.holdings.apply(share_with(1, owner, epoch=5)) is Ruling.APPLY
    made.holdings.see(EpochVersion(7, 0))
    assert made.holdings.apply(share_with(9, epoch=6)) is Ruling.LOWER_EPOCH
    assert made.holdings.holds() == {group_of("a"): Hold.OWNER}
    assert made.holdings.applied == EpochVersion(5, 1)


async def test_a_draining_group_is_reported_quiet_after_30_s_without_strays() -> None:
    """Counted from the loss, and again from each stray; kept until the leader lets it go."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    made.holdings.apply(share_with(2, entry_of(pool_of("a"), Hold.DRAINING, "v")))
    await asyncio.sleep(29.0)
    assert not made.report("a").quiet
    group = made.holdings.get(group_of("a"))
    assert group is not None
    group.last_stray = asyncio.get_running_loop().time()
    await asyncio.sleep(29.0)
    assert not made.report("a").quiet
    await asyncio.sleep(1.5)
    made.holdings.tick(0.5)
    assert made.report("a").quiet
    made.holdings.apply(share_with(3))
    assert len(made.holdings) == 0


async def test_a_group_that_nobody_names_any_more_is_dropped_when_quiet() -> None:
    """An owner that a share forgets drains by itself; no further share is needed."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER)))
    made.holdings.apply(share_with(2))
    assert made.holdings.holds() == {group_of("a"): Hold.DRAINING}
    await asyncio.sleep(QUIET + 0.1)
    made.holdings.tick(0.5)
    assert len(made.holdings) == 0
    assert made.scraper.scraped == []


async def test_after_a_death_sentence_it_serves_strays_and_takes_a_new_share() -> None:
    """The old incarnation's share is refused; the new one's is applied."""
    made = await bench("a")
    made.holdings.apply(share_with(1, entry_of(pool_of("a"), Hold.OWNER), incarnation="i1"))
    made.holdings.rejoin("i2")
    assert made.holdings.holds() == {group_of("a"): Hold.DRAINING}
    owner = entry_of(pool_of("a"), Hold.OWNER)
    assert made.holdings.apply(share_with(2, owner, incarnation="i1")) is Ruling.OTHER_INCARNATION
    assert made.holdings.apply(share_with(3, owner, incarnation="i2")) is Ruling.APPLY
    assert made.holdings.holds() == {group_of("a"): Hold.OWNER}


async def test_being_told_to_hold_nothing_is_being_told() -> None:
    """An idle worker is ready; one that nobody has spoken to is not."""
    made = await bench("a")
    assert not made.holdings.told
    made.holdings.apply(share_with(1))
    assert made.holdings.told


async def test_two_pools_of_one_service_are_one_group() -> None:
    """Both are opened, and the picker knows both."""
    made = Bench()
    shared = group_of("svc")
    made.source.put(pool_of("a", group=shared))
    made.source.put(pool_of("b", group=shared))
    await made.start()
    made.holdings.apply(share_with(1, entry_of(pool_of("a", group=shared), Hold.OWNER)))
    await settle()
    group = made.holdings.get(shared)
    assert group is not None
    assert [state.pool.ref.name for state in group.picker.pools()] == ["a", "b"]
    assert group.picker.needs_model

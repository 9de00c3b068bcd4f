"""Decisions kept fresh: a change decides what it concerns at once, nothing before the lists."""

import asyncio
from random import Random

import pytest

from coordinator.claims import Claims
from coordinator.groups import PoolGroups
from coordinator.metrics import Metrics
from coordinator.ownership import Ownership, ServiceKey, decide
from fleet.model import Pool, PoolRef, Service
from fleet.settings.model import OwnershipSettings
from fleet.sources.contract import Kind, Object
from tests.memory_source import MemorySource
from tests.ownership_facts import (
    FLEET,
    FOREIGN,
    GREEN,
    OURS,
    THEIRS,
    Slices,
    group,
    key,
    pool,
    service,
)

SETTINGS = OwnershipSettings(controller_name=OURS)


def claims_of(source: MemorySource, slices: Slices | None = None) -> Claims:
    return Claims(source, Ownership(SETTINGS, FLEET), slices)


async def turn() -> None:
    """Let the loop turn twice: the first list, then what was decided."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_groups_are_those_of_claimed_pools() -> None:
    """Refused pools and those of others form none; also-serve forms a second."""
    source = MemorySource(
        pool("a"),
        pool("b", service="taken"),
        pool("c", service="c", controller=THEIRS),
        pool("d", service="d", also="d-new"),
        service("taken", selector={"app": "x"}),
        service("d", fleet=None, selector={"app": "x"}),
    )
    groups = PoolGroups(claims_of(source, Slices()))
    await turn()
    assert groups.groups() == {
        group("d-new"): (pool("d").id,),
        group("epp"): (pool("a").id,),
    }
    assert list(groups.groups()) == [group("d-new"), group("epp")]


async def test_a_service_that_changes_changes_groups_at_once() -> None:
    """Refused, labelled, gone again: each on the loop's next turn."""
    source = MemorySource(pool(), service(fleet=None))
    groups = PoolGroups(claims_of(source, Slices()))
    told: list[int] = []
    groups.on_change(lambda: told.append(len(groups.groups())))
    await turn()
    assert groups.groups() == {}
    source.put(service())
    await turn()
    source.put(service(selector={"app": "x"}))
    await turn()
    source.remove(service())
    await turn()
    assert told == [1, 0, 1]


async def test_foreign_slices_change_groups_at_once() -> None:
    """They come and go while the Service stays the same."""
    source, slices = MemorySource(pool(), service()), Slices()
    groups = PoolGroups(claims_of(source, slices))
    await turn()
    assert groups.groups()
    slices.set(key(), FOREIGN)
    assert groups.groups() == {}
    slices.set(key(), GREEN)
    assert groups.groups()


async def test_a_pools_annotation_changes_groups_at_once() -> None:
    """Handed to another fleet, and back."""
    source = MemorySource(pool())
    groups = PoolGroups(claims_of(source, Slices()))
    await turn()
    source.put(pool(controller=THEIRS))
    assert groups.groups() == {}
    source.put(pool(controller=OURS, also="new"))
    assert list(groups.groups()) == [group("epp"), group("new")]


async def test_what_changes_nothing_for_groups_is_not_told() -> None:
    """A label of the pool, a port more of the Service: the same groups, the same object."""
    source = MemorySource(pool(), service())
    groups = PoolGroups(claims_of(source, Slices()))
    await turn()
    before = groups.groups()
    groups.on_change(lambda: pytest.fail("told of nothing"))
    source.put(pool(labels={"x": "y"}))
    source.put(service(ports=(9002, 9003)))
    await turn()
    assert groups.groups() is before


async def test_another_life_of_a_pool_is_another_member() -> None:
    """The same name with a new uid."""
    source = MemorySource(pool())
    groups = PoolGroups(claims_of(source, Slices()))
    await turn()
    source.put(pool(uid="second"))
    assert groups.groups() == {group(): (pool(uid="second").id,)}


async def test_the_last_pool_of_a_service_that_comes_over_decides_the_others() -> None:
    """Whether a Service may be taken over depends on every pool that names it."""
    made = service(fleet="green", created=True, controller=THEIRS, owners=("uid-a",))
    source = MemorySource(made, pool("a", controller=OURS), pool("b", port=9003, controller=THEIRS))
    groups = PoolGroups(claims_of(source, Slices()))
    await turn()
    assert groups.groups() == {}
    source.put(pool("b", port=9003, controller=OURS))
    assert list(groups.groups()) == [group(port=9002), group(port=9003)]
    source.put(pool("b", service="x", controller=THEIRS))
    assert list(groups.groups()) == [group(port=9002)]
    source.put(pool("b", port=9003, controller=THEIRS))
    assert groups.groups() == {}


async def test_synced_only_with_every_list() -> None:
    """Pools without Services would all look as if their Services were missing."""
    source, slices = MemorySource(pool(), listed=False), Slices(listed=False)
    claims = claims_of(source, slices)
    groups = PoolGroups(claims)
    await turn()
    assert not groups.synced()
    assert claims.unlisted() == "pools, Services, EndpointSlices"
    source.list_all()
    assert not groups.synced()
    assert claims.unlisted() == "EndpointSlices"
    slices.listed = True
    assert groups.synced()
    assert claims.unlisted() == ""
    await groups.wait_synced()


async def test_who_sees_synced_sees_the_groups() -> None:
    """In the same turn of the loop: a leader that saw no group at its start would remove all."""
    source = MemorySource(pool(), listed=False)
    groups = PoolGroups(claims_of(source))
    await turn()
    source.put(pool("late", service="late"))
    source.list_all()
    assert groups.synced()
    assert len(groups.groups()) == 2


async def test_a_folder_has_no_services() -> None:
    """Every pool with a picker is a member, Services in the folder notwithstanding."""
    source = MemorySource(
        pool(controller=THEIRS), service(selector={"a": "b"}), pool("b", service=None)
    )
    claims = claims_of(source)
    groups = PoolGroups(claims)
    await turn()
    assert groups.groups() == {group(): (pool().id,)}
    assert not claims.checks_services
    assert claims.service(key()) is None


async def test_metrics_count_claims_and_refusals() -> None:
    """Every reason is always there, so that alerts have something to rest on."""
    source = MemorySource(
        pool("a"), pool("b", service=None), pool("c", service="x"), service("x", fleet=None)
    )
    metrics = Metrics()
    metrics.show_claims(claims_of(source, Slices()))
    await turn()

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    assert value("epp_fleet_pools_claimed") == 1
    assert value("epp_fleet_pool_refusals", reason="NoEndpointPicker") == 1
    assert value("epp_fleet_pool_refusals", reason="ServiceNotLabelled") == 1
    assert value("epp_fleet_pool_refusals", reason="ServiceHasSelector") == 0


@pytest.mark.parametrize("seed", range(12))
async def test_step_by_step_is_as_all_at_once(seed: int) -> None:
    """Whatever changes in whatever order: decisions and groups are those of a fresh decision."""
    rng = Random(seed)
    source, slices = MemorySource(), Slices()
    claims = claims_of(source, slices)
    groups = PoolGroups(claims)
    await turn()
    names = ("x", "y", None)
    for _ in range(120):
        change: Object = pool(
            rng.choice("abc"),
            service=rng.choice(names),
            port=rng.choice((9002, 9003)),
            controller=rng.choice((None, OURS, THEIRS)),
            also=rng.choice((None, "y", "z", "?")),
        )
        if rng.random() < 0.5:
            change = service(
                rng.choice("xyz"),
                fleet=rng.choice((None, FLEET, "green")),
                created=rng.random() < 0.6,
                selector=rng.choice(({}, {}, {"a": "b"})),
                controller=rng.choice((THEIRS, OURS)),
                owners=rng.choice(((), ("uid-a",), ("uid-b", "uid-c"))),
            )
        (source.put if rng.random() < 0.75 else source.remove)(change)
        if rng.random() < 0.3:
            slices.set(key(rng.choice("xyz")), *rng.choice(((), (FOREIGN,), (GREEN,))))
        if rng.random() < 0.5:
            await turn()
        pools = pools_of(source)
        fresh = decide(pools.values(), services_of(source), slices.writers, SETTINGS, FLEET)
        assert claims.decisions() == fresh
        expected = {
            served.group: tuple(
                sorted(
                    pools[ref].id
                    for ref, each in fresh.items()
                    if any(other.group == served.group for other in each.served)
                )
            )
            for decision in fresh.values()
            for served in decision.served
        }
        assert groups.groups() == expected


def pools_of(source: MemorySource) -> dict[PoolRef, Pool]:
    found = source.objects(Kind.POOL).items()
    return {PoolRef(*name): value for name, value in found if isinstance(value, Pool)}


def services_of(source: MemorySource) -> dict[ServiceKey, Service]:
    found = source.objects(Kind.SERVICE).items()
    return {ServiceKey(*name): value for name, value in found if isinstance(value, Service)}

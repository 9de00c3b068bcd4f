"""A pool that two Services lead to (epp-fleet.dev/also-serve), seen by the worker that holds it."""

from dataclasses import replace

import pytest

from epp_worker.group import Group, inflight_of
from fleet.authority import AuthorityIndex
from fleet.model import GroupKey, Hold, Pool, ShareEntry, group_pools
from fleet.model.pools import ALSO_SERVE
from tests.unit.test_worker_holdings import Bench
from tests.worker_fakes import pod_of, pool_of, settle, share_with

pytestmark = pytest.mark.looptime


def also(pool: Pool, service: str | None) -> Pool:
    return replace(pool, annotations={} if service is None else {ALSO_SERVE: service})


def second(pool: Pool) -> GroupKey:
    assert pool.also_serve is not None
    return pool.also_serve


async def held(pool: Pool) -> Bench:
    made = Bench()
    made.source.put(pool)
    made.source.put(pod_of("a-0", "a", "10.0.0.1"))
    await made.start()
    entries = [ShareEntry(group, Hold.OWNER, (pool.id,), None) for group in pool.groups]
    made.holdings.apply(share_with(1, *entries))
    await settle()
    return made


def endpoints(made: Bench, key: GroupKey) -> list[str]:
    group = made.holdings.get(key)
    assert group is not None
    return [one.address for state in group.states.values() for one in state.endpoints()]


async def test_both_groups_lead_to_the_pools_endpoints() -> None:
    """Each acknowledged for itself, and pods reach both."""
    pool = also(pool_of("a"), "second")
    made = await held(pool)
    assert [endpoints(made, key) for key in pool.groups] == [["10.0.0.1:8000"]] * 2
    assert [report.synced for report in made.holdings.reports()] == [True, True]
    made.source.put(pod_of("a-1", "a", "10.0.0.2"))
    await settle()
    assert [len(endpoints(made, key)) for key in pool.groups] == [2, 2]


async def test_an_annotation_that_comes_and_goes_moves_the_pool() -> None:
    """In and out of the second group; the first one does not notice."""
    pool = also(pool_of("a"), "second")
    made = await held(pool)
    made.source.put(also(pool, None))
    await settle()
    assert made.catalogue.pools_of(second(pool)) == ()
    assert endpoints(made, second(pool)) == []
    assert endpoints(made, pool.groups[0]) == ["10.0.0.1:8000"]
    made.source.put(pool)
    await settle()
    assert endpoints(made, second(pool)) == ["10.0.0.1:8000"]


async def test_streams_are_told_apart_by_service() -> None:
    """Either Service by its name; the pool's own name means that of its endpointPickerRef."""
    pool = also(pool_of("a"), "second")
    index = AuthorityIndex(group_pools([pool]))
    first, other = pool.groups
    for key in (first, other):
        text = f"outbound|{key.port}||{key.service}.{key.namespace}.svc.cluster.local"
        assert index.resolve(text) == key
    namespace, name = pool.ref
    assert index.resolve(f"endpointpicker_{name}_{namespace}_ext_proc") == first


async def test_requests_in_flight_are_counted_over_both_groups() -> None:
    """One figure for each endpoint of the pool."""
    pool = also(pool_of("a"), "second")
    made = await held(pool)
    groups: list[Group] = list(made.holdings)
    for number, group in enumerate(groups, start=1):
        (state,) = next(iter(group.states.values())).endpoints()
        state.inflight = number
    assert inflight_of(groups) == {pool.ref: {"10.0.0.1:8000": 3}}


def test_what_a_pool_says_of_its_groups() -> None:
    """Same port; nothing for its own Service or for what is no name; 9002 without a picker."""
    pool = pool_of("a")
    assert pool.group is not None
    key = pool.group
    assert also(pool, "x").groups == (key, key._replace(service="x"))
    assert also(pool, key.service).groups == (key,)
    assert also(pool, "X").groups == (key,)
    bare = replace(also(pool, "x"), group=None)
    assert bare.groups == (GroupKey(pool.ref.namespace, "x", 9002),)

"""Planned changes of a fleet in a cluster, under steady traffic: no request is lost.

Through gateways that follow EndpointSlices, and through a Service's own address, to which their
connections stick (kubernetes-sigs/gateway-api-inference-extension#548, llm-d/llm-d-router#1885).
The tenants' pools are of both layouts. A failed request and an answer that is cut are both lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.control_plane.objects import eventually
from tests.slice_estate import Counts, SliceEstate

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]

PER_SECOND = 25.0
"""Requests on each of the two ways."""

LATE_SECONDS = 1.5
"""Traffic goes on for this long, until what a Service's address leads to is known to be new."""


CONNECTIONS = "epp_fleet_connections_open"
SERVED = 'epp_fleet_strays_total{outcome="served"}'
FORWARDED = 'epp_fleet_strays_total{outcome="forwarded"}'
HOLDS = "epp_fleet_hold{"

Condition = Callable[[], Awaitable[bool]]


def _figures(
    estate: SliceEstate, worker: str, holds: Callable[[dict[str, float]], bool]
) -> Condition:
    async def asked() -> bool:
        return holds(await estate.fleet.figures(worker))

    return asked


def _connected(estate: SliceEstate, worker: str) -> Condition:
    return _figures(estate, worker, lambda figures: figures[CONNECTIONS] > 0)


def _left_alone(estate: SliceEstate, worker: str) -> Condition:
    return _figures(estate, worker, lambda figures: figures[CONNECTIONS] == 0)


def _forgot(estate: SliceEstate, worker: str) -> Condition:
    return _figures(
        estate, worker, lambda figures: not any(figures[n] for n in figures if HOLDS in n)
    )


def _owns(estate: SliceEstate, worker: str) -> Condition:
    async def owns() -> bool:
        return worker in estate.owners()

    return owns


async def _drained(estate: SliceEstate, worker: str) -> None:
    await estate.fleet.command(worker, "drain")
    await estate.until_owned_by(set(estate.fleet.workers) - {worker}, "drained")


def _assert_nothing_lost(counts: Counts) -> None:
    assert counts.lost == 0, str(counts)
    assert counts.least > PER_SECOND, str(counts)


async def test_all_workers_are_replaced(estate: SliceEstate) -> None:
    """One new pod more, and when it is in use, one old pod is told to end; nobody waits until that
    one is gone. Each leaves by itself, with exit code 0, and no slice names it any more.
    """
    before = set(estate.fleet.workers)
    async with estate.traffic(PER_SECOND) as counts:
        leaving = []
        for old in sorted(before):
            await estate.fleet.join_worker()
            await estate.fleet.end_worker(old)
            leaving.append(asyncio.create_task(estate.fleet.worker_left(old)))
        assert await asyncio.gather(*leaving) == [0] * len(before)
        await asyncio.sleep(LATE_SECONDS)
    _assert_nothing_lost(counts)
    assert not estate.owners() & before


@pytest.mark.parametrize("leader_first", [False, True], ids=["leader-last", "leader-first"])
async def test_all_coordinators_are_replaced(estate: SliceEstate, leader_first: bool) -> None:
    """Each is ready before one goes, whoever leads; each leaves with exit code 0, and one of the
    new ones leads (kubernetes-sigs/gateway-api-inference-extension#1619: a follower that is not
    ready would hold up its roll-out for ever).
    """
    before = set(estate.fleet.coordinators)
    leader = await estate.fleet.leader()
    assert leader in before
    async with estate.traffic(PER_SECOND) as counts:
        for old in sorted(before, key=lambda name: (name == leader) is not leader_first):
            await estate.fleet.join_coordinator()
            assert await estate.fleet.end_coordinator(old) == 0
        await estate.fleet.until_led_by(set(estate.fleet.coordinators))
    _assert_nothing_lost(counts)
    await estate.fleet.until_joined(3)


async def test_one_worker_less_and_one_more_again(estate: SliceEstate) -> None:
    """As an autoscaler does it: the pod that owns something goes, its pools go to the others."""
    name = estate.owner(next(iter(estate.pools)))
    async with estate.traffic(PER_SECOND) as counts:
        await estate.fleet.end_worker(name)
        assert await estate.fleet.worker_left(name) == 0
        await estate.fleet.until_joined(2)
        await estate.fleet.join_worker()
        await asyncio.sleep(LATE_SECONDS)
    _assert_nothing_lost(counts)
    assert name not in estate.owners()


async def test_a_worker_is_drained_and_used_again(estate: SliceEstate) -> None:
    """It hands all pools away and goes on running; gateways that stick to it are sent away one by
    one, until no connection is left. When it may, it takes pools again.
    """
    name = estate.owner(next(iter(estate.pools)))
    async with estate.traffic(PER_SECOND) as counts:
        await eventually(_connected(estate, name), f"gateways ask {name}")
        before = await estate.fleet.figures(name)
        await _drained(estate, name)
        await eventually(_left_alone(estate, name), f"no gateway holds on to {name}")
        after = await estate.fleet.figures(name)
        await estate.fleet.command(name, "undrain")
        await eventually(_owns(estate, name), f"{name} owns a pool again")
        await asyncio.sleep(LATE_SECONDS)
    _assert_nothing_lost(counts)
    assert after[SERVED] > before[SERVED], "no connection stuck to it: this test shows nothing"


async def test_connections_that_wake_up_late_are_served_and_sent_away(estate: SliceEstate) -> None:
    """Connections through a Service's address that were idle while their pools moved away: the
    worker behind them has forgotten the pools. It passes their requests on, and sends them away.
    """
    pool = next(iter(estate.pools))
    name, group = estate.owner(pool), estate.group(pool)

    async def stuck() -> bool:
        address = estate.fleet.address_of(name)
        return estate.gateway.services.connections_to(group, address) > 0

    async with estate.traffic(PER_SECOND) as early:
        await eventually(stuck, f"a Service's address leads to {name}")
    await _drained(estate, name)
    await eventually(_forgot(estate, name), f"{name} holds nothing any more")
    assert await stuck(), "no connection stuck to it: this test shows nothing"
    before = await estate.fleet.figures(name)
    async with estate.traffic(PER_SECOND) as counts:
        await eventually(_left_alone(estate, name), f"no gateway holds on to {name}")
    after = await estate.fleet.figures(name)
    await estate.fleet.command(name, "undrain")
    await estate.fleet.until_joined(3)
    assert early.lost == 0, str(early)
    _assert_nothing_lost(counts)
    assert after[FORWARDED] > before[FORWARDED]


async def test_a_pool_is_never_written(estate: SliceEstate) -> None:
    """Its status is the gateways' own: two of them, and the default entry of the API, stand there
    unchanged, however often its owner changes (kgateway-dev/kgateway#11621, istio/istio#56656,
    envoyproxy/ai-gateway#2333, kubernetes-sigs/gateway-api-inference-extension#830).
    """
    ref = next(iter(estate.pools))
    status = {"parents": [_parent("default", "Status"), _parent("istio"), _parent("kgateway")]}
    written = await estate.fleet.set_pool_status(ref.name, status)
    assert len(written["status"]["parents"]) == 3
    name = estate.owner(ref)
    await _drained(estate, name)
    await estate.fleet.command(name, "undrain")
    await estate.fleet.until_joined(3)
    assert await estate.fleet.pool(ref.name) == written


def _parent(name: str, kind: str = "Gateway") -> dict[str, Any]:
    """One gateway's entry in a pool's status."""
    condition = {
        "type": "Accepted",
        "status": "Unknown" if kind == "Status" else "True",
        "reason": "Pending" if kind == "Status" else "Accepted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {"parentRef": {"kind": kind, "name": name}, "conditions": [condition]}

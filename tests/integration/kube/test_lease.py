"""What every election promises, with a Lease of a real API server."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from coordinator.election.kube_lease import KubeLeaseElection
from fleet.kube.client import KubeClient
from fleet.model import LeaderInfo
from tests.contract import test_election as suite
from tests.contract.election_worlds import SETTINGS, Home, KubeHome, LoopClock
from tests.control_plane.cluster import Cluster

ME = LeaderInfo("c-me", "10.0.0.1:8080", "10.0.0.1:8081")


def a_fleet() -> str:
    """A name that no other test's Lease has."""
    return f"t-{secrets.token_hex(4)}"


@pytest.fixture
async def arena(control_plane: Cluster) -> AsyncIterator[suite.Arena]:
    """Three candidates with a client each."""
    fleet = a_fleet()
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(control_plane.connected()) for _ in range(3)]
        homes: list[Home] = [KubeHome(client, fleet) for client in clients]
        stack.push_async_callback(homes[0].empty)
        arena = suite.Arena(homes)
        stack.push_async_callback(arena.close)
        yield arena


# The same functions, found here by pytest with the arena of this module.
for _name, _test in vars(suite).items():
    if _name.startswith("test_") and "arena" in _test.__code__.co_varnames:
        globals()[_name] = _test


@pytest.fixture
async def home(kube: KubeClient) -> AsyncIterator[KubeHome]:
    home = KubeHome(kube, a_fleet())
    yield home
    await home.empty()


async def test_the_server_takes_every_field_as_it_is_written(home: KubeHome) -> None:
    """It validates types and drops what it does not know: what is read back is what was meant."""
    election = home.election(ME)
    term = await election.acquire(floor=11)
    assert term is not None
    lease = await home.api.get(home.path)
    spec, annotations = lease["spec"], lease["metadata"]["annotations"]
    assert spec["holderIdentity"] == ME.id
    assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (2, 0)
    assert len(spec["renewTime"]) == len("2026-01-01T00:00:00.000000Z")
    assert annotations["epp-fleet.dev/epoch"] == "12"
    await election.release(term)
    assert not (await home.api.get(home.path))["spec"].get("holderIdentity")


async def test_a_write_of_a_deleted_lease_does_not_bring_it_back(home: KubeHome) -> None:
    """A PUT may create a Lease; one with the uid and resourceVersion of a deleted one does not."""
    election = home.election(ME)
    term = await election.acquire(floor=0)
    assert term is not None
    await home.empty()
    lost, standing = await election.renew(term)
    assert (lost, standing.leader, standing.epoch) == (None, None, 0)
    await election.release(term)
    fresh = await home.election(LeaderInfo("c-b", "", "")).observe()
    assert (fresh.leader, fresh.epoch) == (None, 0)


async def test_a_watch_without_a_version_begins_with_the_lease(home: KubeHome) -> None:
    """And tells of the others' writes to this Lease, and to no other."""
    await home.election(ME).acquire(floor=0)
    await KubeHome(home.api, f"{home.fleet}-x").election(ME).acquire(floor=0)
    params = {"fieldSelector": f"metadata.name=epp-fleet-{home.fleet}", "timeoutSeconds": "20"}
    leases = home.path.rpartition("/")[0]
    seen: list[tuple[str, str]] = []
    events: Any = home.api.watch(leases, params=params, read_timeout_seconds=20.0)
    async with aclosing(events) as stream:
        async for event in stream:
            seen.append((event["type"], event["object"]["metadata"]["name"]))
            if len(seen) == 1:
                await home.empty()
            if event["type"] == "DELETED":
                break
    name = f"epp-fleet-{home.fleet}"
    assert seen == [("ADDED", name), ("DELETED", name)]
    await KubeHome(home.api, f"{home.fleet}-x").empty()


async def test_a_follower_is_told_by_the_watch(home: KubeHome) -> None:
    """Within the time of one request, though it asks nothing."""
    election = home.election(ME)
    term = await election.acquire(floor=0)
    assert term is not None
    other = LeaderInfo("c-other", "h:1", "h:2")
    follower = KubeLeaseElection(home.api, other, SETTINGS, home.fleet, LoopClock())
    watching = asyncio.create_task(follower.watch())
    try:
        assert (await follower.observe()).leader == ME
        news = asyncio.create_task(follower.changed())
        await asyncio.sleep(0)
        await election.release(term)
        async with asyncio.timeout(20.0):
            await news
        assert (await follower.observe()).leader is None
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

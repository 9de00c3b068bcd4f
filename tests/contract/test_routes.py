"""What every publisher of routes promises: fenced writes, honest answers."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.errors import RouteError
from fleet.kube.client import open_client
from fleet.model import GroupKey
from fleet.settings.model import KubernetesSettings, Settings
from tests.contract.route_places import ONE, TWO, A, B, C, EdsPlace, Place, SlicePlace, route, term
from tests.fake_api_server import FakeApiServer


@pytest.fixture
def eds(tmp_path: Path) -> EdsPlace:
    return EdsPlace(tmp_path / "eds")


@pytest.fixture
async def slices(tmp_path: Path) -> AsyncIterator[SlicePlace]:
    async with FakeApiServer.running() as server:
        kubeconfig = str(server.kubeconfig(tmp_path))
        client = await open_client(KubernetesSettings(kubeconfig=kubeconfig))
        place = SlicePlace(client, Settings())
        try:
            yield place
        finally:
            await place.close()
            await client.close()


@pytest.fixture(params=["eds", "slices"])
def place(request: pytest.FixtureRequest) -> Place:
    made: Place = request.getfixturevalue(request.param)
    return made


async def test_nothing_is_there_at_first(place: Place) -> None:
    """No routes, no error."""
    assert await place.publisher().read() == {}


async def test_what_is_written_is_read(place: Place) -> None:
    """By anybody; also a route without an address."""
    routes = [route(A, ONE, 1), route(B, TWO, 1), route(C, (), 1)]
    result = await place.publisher().write(routes, term(place, 1))
    assert (result.written, result.unchanged, result.refused) == ((A, B, C), (), ())
    assert result.highest_epoch == 1
    assert await place.publisher().read() == {each.group: each for each in routes}


async def test_a_publisher_sees_what_others_changed(place: Place) -> None:
    """Reading again sees every later write and removal."""
    ours, theirs = place.publisher(), place.publisher()
    await ours.write([route(A, ONE, 1), route(B, ONE, 1)], term(place, 1))
    assert set(await ours.read()) == {A, B}
    await theirs.write([route(A, TWO, 2)], term(place, 2))
    await theirs.remove([B], term(place, 2))
    await place.settle()
    assert await ours.read() == {A: route(A, TWO, 2)}


async def test_a_version_alone_rewrites_nothing(place: Place) -> None:
    """Same addresses, in whatever order, and same epoch: unchanged, with its old version."""
    routes = place.publisher()
    await routes.write([route(A, TWO, 1, 1)], term(place, 1))
    result = await routes.write([route(A, TWO[::-1], 1, 2)], term(place, 1))
    assert (result.written, result.unchanged) == ((), (A,))
    assert await routes.read() == {A: route(A, TWO, 1, 1)}


async def test_a_new_epoch_is_stamped_on_every_route(place: Place) -> None:
    """So that the former leader finds itself refused."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1, 7)], term(place, 1))
    result = await routes.write([route(A, ONE, 2, 1)], term(place, 2))
    assert result.written == (A,)
    assert await routes.read() == {A: route(A, ONE, 2, 1)}


async def test_a_lower_epoch_is_refused(place: Place) -> None:
    """kyverno/kyverno#14984: an ex-leader writes nothing, and learns the epoch that stands."""
    await place.publisher().write([route(A, ONE, 5)], term(place, 5))
    result = await place.publisher().write(
        [route(A, TWO, 4, 99), route(B, TWO, 4, 99)], term(place, 4)
    )
    assert (result.written, result.refused, result.highest_epoch) == ((B,), (A,), 5)
    assert (await place.publisher().read())[A] == route(A, ONE, 5)


async def test_a_lower_version_of_the_same_epoch_is_refused(place: Place) -> None:
    """A write that was overtaken by a later one of the same leader."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1, 3)], term(place, 1))
    result = await routes.write([route(A, TWO, 1, 2)], term(place, 1))
    assert result.refused == (A,)
    assert await routes.read() == {A: route(A, ONE, 1, 3)}


async def test_a_term_that_is_over_writes_nothing(place: Place) -> None:
    """Neither a route nor a removal."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1)], term(place, 1))
    over = term(place, 2, seconds=0.0)
    assert (await routes.write([route(A, TWO, 2), route(B, TWO, 2)], over)).refused == (A, B)
    assert (await routes.remove([A], over)).refused == (A,)
    assert await routes.read() == {A: route(A, ONE, 1)}


async def test_removal_is_fenced_alike(place: Place) -> None:
    """A higher epoch stays; what is not there is unchanged."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1), route(B, ONE, 3)], term(place, 3))
    result = await routes.remove([A, B, C], term(place, 2))
    assert (result.written, result.unchanged, result.refused) == ((A,), (C,), (B,))
    assert result.highest_epoch == 3
    assert set(await routes.read()) == {B}


async def test_a_removed_route_can_be_written_again(place: Place) -> None:
    """A pool that is deleted and comes back."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1)], term(place, 1))
    await routes.remove([A], term(place, 1))
    assert (await routes.write([route(A, ONE, 1)], term(place, 1))).written == (A,)


async def test_an_unreadable_route_counts_as_absent(place: Place) -> None:
    """It is no route to a reader, and the next write repairs it."""
    routes = place.publisher()
    await routes.write([route(A, ONE, 1), route(B, ONE, 1)], term(place, 1))
    await place.spoil(A)
    await place.settle()
    assert set(await routes.read()) == {B}
    assert (await routes.write([route(A, ONE, 1)], term(place, 1))).written == (A,)
    assert (await routes.read())[A] == route(A, ONE, 1)


async def test_one_bad_route_stops_no_other(place: Place) -> None:
    """All others are written before the error is raised; it names the route."""
    routes = place.publisher()
    bad = GroupKey("ns1", "../../etc/passwd", 9002)
    with pytest.raises(RouteError, match="etc/passwd"):
        await routes.write([route(bad, ONE, 1), route(A, ONE, 1)], term(place, 1))
    assert set(await routes.read()) == {A}


async def test_many_routes(place: Place) -> None:
    """More than one batch, each once."""
    groups = [GroupKey("ns1", f"svc-{number}", 9002) for number in range(200)]
    routes = place.publisher()
    result = await routes.write([route(each, ONE, 1) for each in groups], term(place, 1))
    assert sorted(result.written) == sorted(groups)
    assert set(await routes.read()) == set(groups)


async def test_of_many_routes_each_refused_one_and_the_highest_epoch_is_told(place: Place) -> None:
    """Wherever among them: whoever writes with a lower epoch learns what it must pass."""
    groups = [GroupKey("ns1", f"svc-{number}", 9002) for number in range(100)]
    routes, higher = place.publisher(), {groups[7]: 9, groups[38]: 12, groups[90]: 4}
    for group, epoch in higher.items():
        await routes.write([route(group, TWO, epoch)], term(place, epoch))
    result = await routes.write([route(each, ONE, 3) for each in groups], term(place, 3))
    assert set(result.refused) == higher.keys()
    assert sorted(result.written) == sorted(set(groups) - higher.keys())
    assert result.highest_epoch == 12

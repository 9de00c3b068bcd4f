"""Objectives and rewrites of an API server that serves both of their groups, one, or none."""

from pathlib import Path

import pytest

from fleet.model import Rewrite
from fleet.sources.contract import Change, Kind, ObjectKey
from tests import manifest_texts as texts
from tests.fake_api_server import POOLS, FakeApiServer, Resource, Status
from tests.fake_api_store import OBJECTIVES, OLD_OBJECTIVES, OLD_REWRITES, REWRITES
from tests.kube_sources import running_source, until

KINDS = (Kind.OBJECTIVE, Kind.REWRITE)
MADE = (
    (OBJECTIVES, texts.objective("a")),
    (OLD_OBJECTIVES, texts.objective("b", api=texts.X_K8S)),
    (REWRITES, texts.rewrite("a")),
    (OLD_REWRITES, texts.rewrite("b", api=texts.X_K8S)),
)


def ignore(change: Change) -> None:
    """A listener that does not care."""


async def test_no_crds_at_all(tmp_path: Path) -> None:
    """Nobody need install them: there are none, which is no problem; when one comes it is found,
    and with one its objects go."""
    async with (
        FakeApiServer.running(POOLS) as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):
        watches = [on.source.watch(kind, ignore) for kind in KINDS]
        await on.source.start()
        for watch in watches:
            await watch.wait_synced()

        def names() -> list[set[str]]:
            return [{key.name for key in on.source.objects(kind)} for kind in KINDS]

        assert names() == [set(), set()]
        assert on.source.problems() == ()
        assert all(each.missing for each in on.source.conditions())
        for resource, raw in reversed(MADE):
            server.store.install(resource)
            server.put(raw)
        await until(lambda: names() == [{"a", "b"}, {"a", "b"}])
        for resource in (OBJECTIVES, OLD_REWRITES):
            server.uninstall(resource)
        await until(lambda: names() == [{"b"}, {"a"}])
        await until(lambda: on.source.problems() == ())


@pytest.mark.parametrize(("resource", "raw"), MADE)
async def test_one_group_is_enough(tmp_path: Path, resource: Resource, raw: texts.Raw) -> None:
    """Whichever it is."""
    async with (
        FakeApiServer.running(resource) as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):
        server.put(raw)
        kind = Kind(raw["kind"])
        watch = on.source.watch(kind, ignore)
        await on.source.start()
        await watch.wait_synced()
        assert set(on.source.objects(kind)) == {ObjectKey("ns1", raw["metadata"]["name"])}
        assert on.source.problems() == ()


async def test_what_nobody_watches_is_not_asked_for(tmp_path: Path) -> None:
    """A process needs no permission for them unless it uses them."""
    async with (
        FakeApiServer.running() as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):
        denied = server.fail("inferenceobjectives|inferencemodelrewrites", Status(403, "Forbidden"))
        watch = on.source.watch(Kind.POOL, ignore)
        await on.source.start()
        await watch.wait_synced()
        assert denied.hits == 0
        assert on.source.problems() == ()


async def test_the_age_of_a_rewrite_is_the_servers(tmp_path: Path) -> None:
    """From a list and from an event alike: precedence rests on it."""
    async with (
        FakeApiServer.running() as server,
        running_source(server.kubeconfig(tmp_path)) as on,
    ):

        def put(name: str, created: str) -> None:
            raw = texts.rewrite(name)
            raw["metadata"]["creationTimestamp"] = created
            server.put(raw)

        def ages() -> dict[str, float]:
            found = on.source.objects(Kind.REWRITE).values()
            return {each.ref.name: each.created for each in found if isinstance(each, Rewrite)}

        put("listed", "2026-01-31T12:00:00Z")
        watch = on.source.watch(Kind.REWRITE, ignore)
        await on.source.start()
        await watch.wait_synced()
        put("told", "2026-01-31T12:00:01Z")
        await until(lambda: ages() == {"listed": 1769860800.0, "told": 1769860801.0})

"""What every source promises; run for each world in `source_worlds`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.model import Objective, ObjectRef, Pod, Pool, PoolReference, Rewrite, Rule, Target
from fleet.sources.contract import Change, Kind, ObjectKey
from tests import manifest_texts as texts
from tests.contract.source_worlds import WORLDS, World

A, B = ObjectKey("ns1", "a"), ObjectKey("ns1", "b")


@pytest.fixture(params=sorted(WORLDS))
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with WORLDS[request.param](tmp_path) as made:
        yield made


class Log:
    """A listener that remembers in short form: `+a`, `~a`, `-a`."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def __call__(self, change: Change) -> None:
        self.changes.append(change)

    def take(self) -> list[str]:
        """What came since the last call."""
        signs = [
            ("+" if each.old is None else "-" if each.new is None else "~") + each.key.name
            for each in self.changes
        ]
        self.changes.clear()
        return signs

    def names(self) -> set[str]:
        """The names of what changed."""
        return {each.key.name for each in self.changes}


@pytest.fixture
def lax_world(world: World) -> World:
    """A world in which objects may be malformed."""
    if world.validates:
        pytest.skip("this API server refuses malformed objects itself")
    return world


def pool_ports(world: World) -> dict[str, tuple[int, ...]]:
    pools = [p for p in world.source.objects(Kind.POOL).values() if isinstance(p, Pool)]
    return {pool.ref.name: pool.target_ports for pool in pools}


async def test_the_first_list_then_each_change(world: World) -> None:
    """What exists comes as additions; then exactly what changes, in order."""
    log = Log()
    await world.put(texts.pool("a"))
    await world.source.start()
    watch = world.source.watch(Kind.POOL, log)
    assert not watch.synced()
    await asyncio.wait_for(watch.wait_synced(), 10)
    assert log.take() == ["+a"]
    await world.put(texts.pool("b"))
    await world.settle()
    assert log.take() == ["+b"]
    await world.put(texts.pool("a", ports=(9000,)))
    await world.settle()
    (change,) = log.changes
    assert isinstance(change.old, Pool)
    assert isinstance(change.new, Pool)
    assert (change.old.target_ports, change.new.target_ports) == ((8000,), (9000,))
    log.take()
    await world.delete(texts.pool("a"))
    await world.settle()
    assert log.take() == ["-a"]
    assert set(world.source.objects(Kind.POOL)) == {B}


async def test_the_copy_has_changed_before_the_listener_is_called(world: World) -> None:
    """A listener may read the source."""
    seen: list[bool] = []

    def listener(change: Change) -> None:
        seen.append(world.source.objects(change.kind).get(change.key) is change.new)

    world.source.watch(Kind.POOL, listener)
    await world.source.start()
    await world.settle()
    await world.put(texts.pool("a"))
    await world.settle()
    await world.delete(texts.pool("a"))
    await world.settle()
    assert seen == [True, True]


async def test_a_late_listener_is_told_everything(world: World) -> None:
    """Watching begins with the list, whenever it begins."""
    await world.put(texts.pool("a"))
    await world.put(texts.pool("b"))
    await world.source.start()
    await world.settle()
    log = Log()
    watch = world.source.watch(Kind.POOL, log)
    await asyncio.wait_for(watch.wait_synced(), 10)
    assert sorted(log.take()) == ["+a", "+b"]


async def test_kinds_and_namespaces_are_told_apart(world: World) -> None:
    """A listener hears of its kind and its namespace only; so does a reader."""
    pods, elsewhere = Log(), Log()
    world.source.watch(Kind.POD, pods, namespace="ns1")
    world.source.watch(Kind.POD, elsewhere, namespace="ns2")
    await world.source.start()
    await world.put(texts.pool("a"))
    await world.put(texts.pod("p"))
    await world.put(texts.pod("q", "ns2"))
    await world.settle()
    assert (pods.names(), elsewhere.names()) == ({"p"}, {"q"})
    assert set(world.source.objects(Kind.POD, namespace="ns2")) == {ObjectKey("ns2", "q")}
    assert set(world.source.objects(Kind.POD)) == {ObjectKey("ns1", "p"), ObjectKey("ns2", "q")}
    assert world.source.objects(Kind.POD, namespace="ns3") == {}


async def test_a_closed_watch_is_silent(world: World) -> None:
    """And the others are not."""
    closed, open_ = Log(), Log()
    watch = world.source.watch(Kind.POOL, closed)
    world.source.watch(Kind.POOL, open_)
    await world.source.start()
    await world.settle()
    watch.close()
    await world.put(texts.pool("a"))
    await world.settle()
    assert (closed.take(), open_.take()) == ([], ["+a"])


async def test_a_listener_that_raises_harms_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """It breaks its promise, loudly; the next one is called all the same."""

    def broken(change: Change) -> None:
        raise RuntimeError(change.key.name)

    log = Log()
    world.source.watch(Kind.POOL, broken)
    world.source.watch(Kind.POOL, log)
    await world.source.start()
    await world.put(texts.pool("a"))
    await world.settle()
    assert log.take() == ["+a"]
    assert "source listener failed" in caplog.text


async def test_a_bad_object_keeps_its_last_good_state(lax_world: World) -> None:
    """agentgateway/agentgateway#1719: it is reported until repaired; nobody is told of a change."""
    world = lax_world
    log = Log()
    await world.put(texts.pool("a"))
    world.source.watch(Kind.POOL, log)
    await world.source.start()
    await world.settle()
    assert log.take() == ["+a"]
    await world.put(texts.pool("a", targetPorts=[]))
    await world.settle()
    assert log.take() == []
    assert pool_ports(world) == {"a": (8000,)}
    (problem,) = world.source.problems()
    assert problem.message.startswith("InferencePool ns1/a: spec.targetPorts: no port")
    await world.put(texts.pool("a", ports=(9000,)))
    await world.settle()
    assert log.take() == ["~a"]
    assert world.source.problems() == ()


async def test_a_bad_object_that_is_removed_is_gone(lax_world: World) -> None:
    """The last good state is no ghost: with the object goes its problem."""
    world = lax_world
    await world.put(texts.pool("a"))
    world.source.watch(Kind.POOL, Log())
    await world.source.start()
    await world.settle()
    await world.put(texts.pool("a", targetPorts=[]))
    await world.settle()
    assert len(world.source.problems()) == 1
    await world.delete(texts.pool("a"))
    await world.settle()
    assert pool_ports(world) == {}
    assert world.source.problems() == ()


async def test_an_object_that_was_always_bad_does_not_exist(lax_world: World) -> None:
    """It is skipped with a reason, and the source is in sync."""
    world = lax_world
    log = Log()
    watch = world.source.watch(Kind.POOL, log)
    await world.put({**texts.pool("a"), "spec": None})
    await world.source.start()
    await asyncio.wait_for(watch.wait_synced(), 10)
    assert log.take() == []
    assert len(world.source.problems()) == 1


async def test_another_uid_is_a_change(world: World) -> None:
    """kubernetes-sigs/gateway-api-inference-extension#350: a recreated pool is another pool."""
    raw = texts.pool("a")
    raw["metadata"]["uid"] = "1"
    await world.put(raw)
    log = Log()
    world.source.watch(Kind.POOL, log)
    await world.source.start()
    await world.settle()
    (first,) = log.changes
    log.changes.clear()
    raw["metadata"]["uid"] = "2"
    await world.put(raw)
    await world.settle()
    assert isinstance(first.new, Pool)
    last = log.changes[-1].new
    assert isinstance(last, Pool)
    assert last.id != first.new.id


async def test_an_evicted_pod_stays_but_is_not_ready(world: World) -> None:
    """vllm-project/production-stack#1091: a change to an empty address is not overlooked."""
    await world.put(texts.pod("p"))
    world.source.watch(Kind.POD, Log(), namespace="ns1")
    await world.source.start()
    await world.settle()
    await world.put(texts.pod("p", ip=None, phase="Failed"))
    await world.settle()
    found = world.source.objects(Kind.POD)[ObjectKey("ns1", "p")]
    assert isinstance(found, Pod)
    assert (found.ip, found.ready) == ("", False)


POOL_A = PoolReference("ns1", "pool-a", "inference.networking.k8s.io")


@pytest.mark.parametrize("api", [texts.LLM_D, texts.X_K8S])
async def test_an_objectives_life(world: World, api: str) -> None:
    """In either API group: read, changed, gone."""
    log = Log()
    world.source.watch(Kind.OBJECTIVE, log)
    await world.source.start()
    await world.put(texts.objective("a", api=api, priority=-5))
    await world.put(texts.rewrite("b", api=api))
    await world.settle()
    found = world.source.objects(Kind.OBJECTIVE)[A]
    assert isinstance(found, Objective)
    assert replace(found, uid="") == Objective(ObjectRef("ns1", "a"), "", POOL_A, -5)
    await world.put(texts.objective("a", api=api, priority=5))
    await world.settle()
    await world.delete(texts.objective("a", api=api))
    await world.settle()
    assert log.take() == ["+a", "~a", "-a"]
    assert world.source.objects(Kind.OBJECTIVE) == {}


@pytest.mark.parametrize("api", [texts.LLM_D, texts.X_K8S])
async def test_a_rewrites_life(world: World, api: str) -> None:
    """In either API group: read, changed, gone."""
    log = Log()
    world.source.watch(Kind.REWRITE, log, namespace="ns1")
    await world.source.start()
    await world.put(texts.rewrite("a", api=api))
    await world.put(texts.objective("b", api=api))
    await world.put(texts.rewrite("b", "ns2", api=api))
    await world.settle()
    found = world.source.objects(Kind.REWRITE, namespace="ns1")[A]
    assert isinstance(found, Rewrite)
    rule = Rule((Target("chat-v1"),), frozenset({"chat"}))
    expected = Rewrite(ObjectRef("ns1", "a"), "", POOL_A, (rule,))
    assert replace(found, uid="", created=0.0) == expected
    await world.put(texts.rewrite("a", api=api, rules=[]))
    await world.settle()
    await world.delete(texts.rewrite("a", api=api))
    await world.settle()
    assert log.take() == ["+a", "~a", "-a"]
    assert world.source.objects(Kind.REWRITE, namespace="ns1") == {}


@pytest.mark.parametrize(
    ("kind", "make"), [(Kind.OBJECTIVE, texts.objective), (Kind.REWRITE, texts.rewrite)]
)
async def test_of_one_name_in_both_groups_llm_d_counts(
    world: World, kind: Kind, make: Callable[..., texts.Raw]
) -> None:
    """The others of the older group count too; and it is seen again when the newer one goes."""
    old, new = {"name": "pool-old"}, {"name": "pool-new"}
    log = Log()
    world.source.watch(kind, log)

    def pools() -> dict[str, str]:
        found = world.source.objects(kind).values()
        return {
            each.ref.name: each.pool.name for each in found if isinstance(each, Objective | Rewrite)
        }

    await world.source.start()
    await world.put(make("a", api=texts.X_K8S, poolRef=old))
    await world.put(make("b", api=texts.X_K8S, poolRef=old))
    await world.settle()
    assert pools() == {"a": "pool-old", "b": "pool-old"}
    await world.put(make("a", poolRef=new))
    await world.settle()
    assert pools() == {"a": "pool-new", "b": "pool-old"}
    log.take()
    await world.put(make("a", api=texts.X_K8S, poolRef={"name": "pool-older"}))
    await world.settle()
    assert log.take() == []
    await world.delete(make("a"))
    await world.settle()
    assert log.take() == ["~a"]
    assert pools() == {"a": "pool-older", "b": "pool-old"}
    assert world.source.problems() == ()


@pytest.mark.parametrize(
    ("kind", "good", "bad", "fault"),
    [
        (
            Kind.OBJECTIVE,
            texts.objective("a"),
            texts.objective("a", priority=2**31),
            "InferenceObjective ns1/a: spec.priority: 2147483648 is out of range",
        ),
        (
            Kind.REWRITE,
            texts.rewrite("a"),
            texts.rewrite("a", rules=[{"targets": []}]),
            "InferenceModelRewrite ns1/a: spec.rules[0].targets: no target",
        ),
    ],
)
async def test_a_bad_objective_or_rewrite_keeps_its_last_good_state(
    lax_world: World, kind: Kind, good: texts.Raw, bad: texts.Raw, fault: str
) -> None:
    """As a bad pool does."""
    world, log = lax_world, Log()
    world.source.watch(kind, log)
    await world.source.start()
    await world.put(good)
    await world.settle()
    await world.put(bad)
    await world.settle()
    assert log.take() == ["+a"]
    assert set(world.source.objects(kind)) == {A}
    (problem,) = world.source.problems()
    assert problem.message.startswith(fault)


async def test_without_its_world_a_source_keeps_what_it_has(world: World) -> None:
    """The age grows, nothing is removed, and afterwards only real changes are told."""
    log = Log()
    await world.put(texts.pool("a"))
    world.source.watch(Kind.POOL, log)
    await world.source.start()
    await world.settle()
    assert log.take() == ["+a"]
    young = world.source.age()
    await world.take_away()
    await world.settle()
    await world.pass_time(60)
    assert world.source.age() >= young + 60
    assert pool_ports(world) == {"a": (8000,)}
    assert world.source.problems() != ()
    await world.give_back()
    await world.put(texts.pool("b"))
    await world.settle()
    assert log.take() == ["+b"]
    assert world.source.age() <= young + 1
    assert world.source.problems() == ()


async def test_close_is_idempotent_and_final(world: World) -> None:
    """No listener is called afterwards."""
    log = Log()
    world.source.watch(Kind.POOL, log)
    await world.put(texts.pool("a"))
    await world.source.start()
    await world.source.close()
    await world.source.close()
    log.take()
    await asyncio.sleep(0)
    assert log.take() == []

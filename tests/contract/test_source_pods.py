"""What every source promises of pods that can be used but not as they are written."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.model import Pod
from fleet.sources.contract import Kind, ObjectKey
from tests import manifest_texts as texts
from tests.contract.source_worlds import WORLDS, World

PORTS = "llm-d.ai/active-ports"


@pytest.fixture(params=sorted(WORLDS))
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    async with WORLDS[request.param](tmp_path) as made:
        yield made


def pod(name: str, ports: str | None = None) -> texts.Raw:
    raw = texts.pod(name)
    if ports is not None:
        raw["metadata"]["annotations"] = {PORTS: ports, "kubectl.example.com/last-applied": "{}"}
    return raw


def active(world: World) -> dict[str, frozenset[int] | None]:
    pods = world.source.objects(Kind.POD).values()
    return {pod.name: pod.active_ports for pod in pods if isinstance(pod, Pod)}


async def test_a_bad_port_list_is_a_problem_and_the_pod_is_there(world: World) -> None:
    """The problem names pod, annotation and value; it goes when the list is repaired, or the pod
    itself goes; what was good in the list counts."""
    changed: list[ObjectKey] = []
    await world.put(pod("a", "8001,x"))
    await world.put(pod("b"))
    watch = world.source.watch(Kind.POD, lambda change: changed.append(change.key))
    await world.source.start()
    await world.settle()
    assert active(world) == {"a": frozenset({8001}), "b": None}
    (problem,) = world.source.problems()
    assert problem.message == (
        f"Pod ns1/a: metadata.annotations[{PORTS}]: 'x' is no port; "
        "give ports from 1 to 65535 with commas between"
    )
    assert "a" in problem.where or "document" in problem.where
    await world.put(pod("a", "8001"))
    await world.settle()
    assert world.source.problems() == ()
    await world.put(pod("a", "y"))
    await world.settle()
    assert active(world) == {"a": None, "b": None}
    assert len(world.source.problems()) == 1
    await world.delete(pod("a"))
    await world.settle()
    assert world.source.problems() == ()
    assert changed.count(ObjectKey("ns1", "a")) == 4
    watch.close()

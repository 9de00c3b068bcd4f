"""What the list and watch of the fleet's own pods tells of its workers."""

import random
from typing import Any

import pytest

from coordinator.verdicts import PodAt
from coordinator.worker_pods import MAX_GONE, WorkerPod, WorkerPods, worker_pod
from fleet.kube.listwatch_cache import Delta, Key
from fleet.model import Addresses
from fleet.settings.model import Settings
from tests.memory_kube import MemoryApiServer, MemoryKube
from tests.stepped_clock import SteppedClock


def raw(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "w-0", "uid": "u1"}, "status": status}


def pod(
    name: str = "w-0",
    ip: str = "192.0.2.1",
    uid: str = "u1",
    *,
    ended: bool = False,
    ending: bool = False,
) -> WorkerPod:
    return WorkerPod(name, uid, ip, ended, ending, None)


class World:
    """Pods as a watch would tell of them."""

    def __init__(self) -> None:
        api = MemoryKube(MemoryApiServer())
        self.pods = WorkerPods(api, Settings(), SteppedClock(), rng=random.Random(1))
        self._known: dict[str, WorkerPod] = {}

    def become(self, *pods: WorkerPod) -> None:
        """The pods are these now."""
        new = {each.name: each for each in pods}
        deltas = [
            Delta(Key("epp", name), self._known.get(name), new.get(name))
            for name in [*self._known, *(name for name in new if name not in self._known)]
            if self._known.get(name) != new.get(name)
        ]
        self._known = new
        self.pods._told(deltas)


@pytest.mark.parametrize(
    ("status", "ip", "ended"),
    [
        ({"phase": "Running", "podIP": "192.0.2.1"}, "192.0.2.1", False),
        ({"phase": "Pending"}, "", False),
        ({"phase": "Failed", "reason": "Evicted", "podIP": None}, "", True),
        ({"phase": "Succeeded", "podIP": "192.0.2.1"}, "192.0.2.1", True),
        ({}, "", False),
    ],
)
def test_a_pod_is_trimmed(status: dict[str, Any], ip: str, ended: bool) -> None:
    """Unready ones are present like all others: readiness is not even read."""
    assert worker_pod(raw(**status)) == WorkerPod("w-0", "u1", ip, ended, False, None)


@pytest.mark.parametrize(
    ("cost", "read"), [("7", 7), ("-7", -7), ("x", None), ("", None), ("٣", None), ("--1", None)]
)
def test_a_deletion_cost_is_a_number_or_none(cost: str, read: int | None) -> None:
    """Whatever somebody wrote there."""
    body = raw() | {}
    body["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    assert worker_pod(body).cost == read


def test_a_pod_that_is_deleted_is_gone_with_its_address() -> None:
    """vllm-project/production-stack#1091: by an event, or by a list that does not name it."""
    world = World()
    world.become(pod("w-0"), pod("w-1", "192.0.2.2"))
    assert world.pods.gone() == ()
    world.become(pod("w-1", "192.0.2.2"))
    assert world.pods.gone() == (PodAt("w-0", "192.0.2.1"),)
    assert [each.name for each in world.pods.living()] == ["w-1"]


def test_an_evicted_pod_is_gone_though_it_lost_its_address() -> None:
    """vllm-project/production-stack#1091: phase Failed, podIP None: known by what it had."""
    world = World()
    world.become(pod())
    world.become(pod(ip="", ended=True))
    assert world.pods.gone() == (PodAt("w-0", "192.0.2.1"),)
    assert world.pods.living() == ()


def test_a_pod_that_was_dead_when_we_came_is_gone() -> None:
    """Without an address: whoever bears its name."""
    world = World()
    world.become(pod(ip="", ended=True))
    assert world.pods.gone() == (PodAt("w-0", ""),)


def test_another_uid_under_the_name_is_another_pod() -> None:
    """A StatefulSet's, told as one change: the old one is gone, the new one lives."""
    world = World()
    world.become(pod())
    world.become(pod(ip="192.0.2.9", uid="u2"))
    assert world.pods.gone() == (PodAt("w-0", "192.0.2.1"),)
    assert [each.uid for each in world.pods.living()] == ["u2"]


def test_a_new_pod_is_not_taken_for_the_old_one() -> None:
    """It got the same address, or nobody knows which the old one had."""
    world = World()
    world.become(pod(), pod("w-1", "", ended=True))
    world.become()
    world.become(pod(ip="", uid="u2"), pod("w-1", "", uid="u4"))
    assert world.pods.gone() == (PodAt("w-0", "192.0.2.1"),)
    world.become(pod(uid="u2"), pod("w-1", "", uid="u4"))
    assert world.pods.gone() == ()


def test_a_pod_that_never_ran_leaves_nothing_behind() -> None:
    """It was deleted before it had an address, so no worker ever spoke from it."""
    world = World()
    world.become(pod(ip=""))
    world.become()
    assert world.pods.gone() == ()


def test_a_pod_that_is_being_deleted_is_told_apart() -> None:
    """It drains; it is not gone."""
    world = World()
    world.become(pod(ending=True), pod("w-1", "192.0.2.2"))
    assert world.pods.ending() == (PodAt("w-0", "192.0.2.1"),)
    assert world.pods.gone() == ()


def test_contacts_are_the_pods_that_nobody_knows() -> None:
    """While the store is away they are all that is known of a new worker."""
    world = World()
    world.become(
        pod("w-0"), pod("w-1", "2001:db8::1"), pod("w-2", ""), pod("w-3", "192.0.2.3", ended=True)
    )
    (found,) = world.pods.contacts({"w-0"})
    assert (found.id, found.incarnation) == ("w-1", "")
    assert found.addresses == Addresses(
        "[2001:db8::1]:9002", "[2001:db8::1]:9003", "[2001:db8::1]:9004", "[2001:db8::1]:9090"
    )


def test_what_is_remembered_is_bounded() -> None:
    """The latest stay."""
    world = World()
    for number in range(MAX_GONE + 10):
        world.become(pod(f"w-{number}"))
    world.become()
    gone = world.pods.gone()
    assert (len(gone), gone[-1].name) == (MAX_GONE, f"w-{MAX_GONE + 9}")


def test_listeners_hear_of_each_change_until_they_leave() -> None:
    """So that a leader looks at once."""
    world, heard = World(), []
    leave = world.pods.on_change(lambda: heard.append(1))
    world.become(pod())
    world.become()
    leave()
    world.become(pod())
    assert len(heard) == 2

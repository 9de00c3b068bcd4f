"""Verdicts by the list of the workers' pods, and when it is doubted."""

from coordinator.verdicts import Answer, PodAt
from fleet.model import MemberState, Signal
from tests.membership_scenes import beat, deaths, fleet_of, listen, report, states, worker


def test_a_worker_whose_pod_is_gone_is_dead_at_once() -> None:
    """Also with its stream up and its beats fresh."""
    membership, members = fleet_of(3)
    membership.pods_seen(gone=[PodAt("worker-0", "10.0.0.0")], ending=())
    assert deaths(membership.judge(0.1)) == {"worker-0": Signal.POD_GONE}
    assert membership.hello(members[0], 0.2) is Answer.DEAD


def test_a_pod_that_was_replaced_kills_only_whoever_lived_in_it() -> None:
    """A StatefulSet's new pod bears the old one's name, at another address."""
    membership, _ = fleet_of(3)
    membership.control_down(worker(0), 0.0)
    newcomer = worker(0, "b", host="10.0.9.9")
    assert membership.hello(newcomer, 1.0) is Answer.JOINED
    membership.judge(1.0)
    membership.pods_seen(gone=[PodAt("worker-0", "10.0.0.0")], ending=())
    assert deaths(membership.judge(1.1)) == {}
    assert membership.current("worker-0") == newcomer


def test_a_pod_that_never_had_an_address_kills_whoever_bears_its_name() -> None:
    """An evicted pod has lost its address; no other pod has its name."""
    membership, _ = fleet_of(3)
    membership.pods_seen(gone=[PodAt("worker-0", ""), PodAt("nobody", "")], ending=())
    assert deaths(membership.judge(0.1)) == {"worker-0": Signal.POD_GONE}


def test_if_most_pods_are_gone_at_once_those_who_talk_are_believed() -> None:
    """ray-project/ray#34281: a list that lost its items must not stop the whole fleet."""
    membership, members = fleet_of(3)
    gone = [PodAt("worker-0", "10.0.0.0"), PodAt("worker-1", "10.0.0.1")]
    membership.pods_seen(gone=gone, ending=())
    assert deaths(membership.judge(0.1)) == {}
    membership.control_down(members[0], 0.0)
    assert deaths(membership.judge(0.2)) == {"worker-0": Signal.POD_GONE}
    assert deaths(membership.judge(0.3)) == {}
    report(membership, members, 1.5)
    membership.pods_seen(gone=gone, ending=())
    assert deaths(membership.judge(2.1)) == {}


def test_pods_that_are_listed_again_leave_no_doubt_behind() -> None:
    """A short list was followed by a whole one: streams may break as ever."""
    membership, members = fleet_of(2)
    gone = [PodAt("worker-0", "10.0.0.0"), PodAt("worker-1", "10.0.0.1")]
    membership.pods_seen(gone=gone, ending=())
    assert deaths(membership.judge(0.1)) == {}
    membership.pods_seen(gone=(), ending=())
    membership.control_down(members[0], 0.0)
    assert deaths(membership.judge(0.2)) == {}


def test_podless_workers_that_fall_silent_are_dead() -> None:
    """A node is lost and its pods are deleted by force: no stream breaks, nothing comes."""
    membership, members = fleet_of(3)
    gone = [PodAt(f"worker-{number}", f"10.0.0.{number}") for number in (0, 1)]
    membership.pods_seen(gone=gone, ending=())
    listen(membership, 0.0, 2.0)
    report(membership, members[2:], 2.0)
    assert deaths(membership.judge(2.0)) == {
        "worker-0": Signal.POD_GONE,
        "worker-1": Signal.POD_GONE,
    }


def test_a_pod_that_is_being_deleted_drains() -> None:
    """Before its worker says so, and only it."""
    membership, _ = fleet_of(2)
    ending = [PodAt("worker-0", "10.0.0.0"), PodAt("worker-1", "10.0.0.77")]
    membership.pods_seen(gone=(), ending=ending)
    assert states(membership.judge(0.1)) == {
        "worker-0": MemberState.DRAINING,
        "worker-1": MemberState.ALIVE,
    }


def test_who_lives_on_without_a_pod_is_left_alone_until_the_pod_is_listed_again() -> None:
    """Its container runs on after its pod was deleted by force: told that it is dead it would come
    back as somebody else, who is dead at once, again and again."""
    membership, members = fleet_of(3)
    gone = [PodAt("worker-0", "10.0.0.0")]
    membership.pods_seen(gone=gone, ending=())
    assert deaths(membership.judge(0.1)) == {"worker-0": Signal.POD_GONE}
    beat(membership, members, 0.2)
    assert members[0] not in membership.contacts(0.2)
    membership.pods_seen(gone=(), ending=())
    assert members[0] in membership.contacts(0.3)


def test_a_namesake_in_another_pod_is_dialled() -> None:
    """The pod that is gone had another address."""
    membership, members = fleet_of(3)
    membership.pods_seen(gone=[PodAt("worker-0", "10.0.0.0")], ending=())
    membership.judge(0.1)
    newcomer = worker(0, "b", host="10.0.9.9")
    beat(membership, [newcomer, *members[1:]], 0.2)
    assert newcomer in membership.contacts(0.2)

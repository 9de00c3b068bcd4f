"""The shared facts: how they compare, parse and follow from each other."""

import pytest

from fleet.model import (
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Phase,
    Placement,
    Pod,
    Pool,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
    ShareEntry,
    endpoints_of,
    group_pools,
    share_of,
)

GROUP = GroupKey("ns", "epp", 9002)


def _pool(name: str = "llama", group: GroupKey | None = GROUP, namespace: str = "ns") -> Pool:
    return Pool(PoolRef(namespace, name), f"uid-{name}", {"app": "llama"}, (8000, 8001), group)


def _pod(name: str, ip: str = "10.0.0.1", *, ready: bool = True, namespace: str = "ns") -> Pod:
    return Pod(namespace, name, f"uid-{name}", {"app": "llama", "x": "y"}, ip, ready)


def test_versions_compare_as_pairs() -> None:
    """A higher epoch wins over any version of a lower one."""
    assert EpochVersion(2, 1) > EpochVersion(1, 999)
    assert EpochVersion(2, 10) > EpochVersion(2, 9)
    assert EpochVersion(2, 9).next() == EpochVersion(2, 10)
    assert EpochVersion.parse(str(EpochVersion(12, 345))) == EpochVersion(12, 345)


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "1.2.3", "-1.2", "1.x", "\u0661.2", "1 .2"])
def test_what_is_no_version_is_refused(text: str) -> None:
    """Two non-negative decimal numbers in ASCII, nothing else."""
    with pytest.raises(ValueError, match=r"not an epoch\.version"):
        EpochVersion.parse(text)


def test_a_group_is_read_back_as_it_is_written() -> None:
    """`namespace/service:port` is a key in maps and files."""
    assert str(GROUP) == "ns/epp:9002"
    assert GroupKey.parse("ns/epp:9002") == GROUP


@pytest.mark.parametrize("text", ["", "ns/epp", "epp:9002", "/epp:9002", "ns/:9002", "ns/epp:x"])
def test_what_is_no_group_is_refused(text: str) -> None:
    """A damaged key raises, it is not completed."""
    with pytest.raises(ValueError, match="not a namespace/service:port"):
        GroupKey.parse(text)


def test_endpoints_are_ready_pods_of_the_pool_times_ports() -> None:
    """Ordered by pod and port; other namespaces, other labels and unready pods are left out."""
    pods = [
        _pod("b", "fd00::0:2"),
        _pod("a"),
        _pod("late", ready=False),
        _pod("far", namespace="other"),
        Pod("ns", "other", "uid", {"app": "other"}, "10.0.0.9", True),
    ]
    found = endpoints_of(_pool(), pods)
    assert [(each.pod, each.pod_uid, each.address, each.rank) for each in found] == [
        ("a", "uid-a", "10.0.0.1:8000", 0),
        ("a", "uid-a", "10.0.0.1:8001", 1),
        ("b", "uid-b", "[fd00::2]:8000", 0),
        ("b", "uid-b", "[fd00::2]:8001", 1),
    ]
    assert all(each.labels == {"app": "llama", "x": "y"} for each in found)


def test_an_empty_selector_selects_nothing() -> None:
    """A pool without a selector must not get every pod of its namespace."""
    pool = Pool(PoolRef("ns", "p"), "u", {}, (8000,), GROUP)
    assert endpoints_of(pool, [_pod("a")]) == ()


def test_pools_of_one_service_and_port_are_one_group() -> None:
    """Ordered by name; a pool that no gateway can reach is in no group."""
    a, b, alone = _pool("a"), _pool("b"), _pool("alone", None)
    other = _pool("c", GroupKey("ns", "epp", 9003))
    assert group_pools([b, alone, other, a]) == {GROUP: (a, b), other.group: (other,)}


def test_a_share_is_what_the_worker_holds_in_any_way() -> None:
    """Owner, gainer of a move, former owner and stand-by; groups of others are left out."""
    pools = (PoolId(PoolRef("ns", "llama"), "u"),)

    def placement(service: str, owner: str, **more: object) -> Placement:
        fields: dict[str, object] = {
            "group": GroupKey("ns", service, 1),
            "pools": pools,
            "phase": Phase.OWNED,
            "owners": (owner,),
            "standby": None,
            "reason": Reason.KEPT,
            "since": 0.0,
            **more,
        }
        return Placement(**fields)  # type: ignore[arg-type]

    placements = [
        placement("owned", "w"),
        placement("warm", "x", standby="w"),
        placement("coming", "x", phase=Phase.MOVING, moving_to="w", standby="w"),
        placement("going", "x", draining=("w",)),
        placement("foreign", "x", standby="y"),
    ]
    shard_map = ShardMap(
        "default",
        EpochVersion(3, 4),
        0.0,
        LeaderInfo("c", "h:1", "h:2"),
        {p.group: p for p in placements},
        incarnations={"w": "i-7"},
    )
    share = share_of(shard_map, "w")
    assert (share.worker, share.incarnation, share.version) == ("w", "i-7", EpochVersion(3, 4))
    assert share.entries == (
        ShareEntry(GroupKey("ns", "owned", 1), Hold.OWNER, pools, "w"),
        ShareEntry(GroupKey("ns", "warm", 1), Hold.STANDBY, pools, "x"),
        ShareEntry(GroupKey("ns", "coming", 1), Hold.OPENING, pools, "x"),
        ShareEntry(GroupKey("ns", "going", 1), Hold.DRAINING, pools, "x"),
    )
    assert share_of(shard_map, "nobody").entries == ()

"""When a local fleet is ready."""

from typing import Any

from fleet.local.readiness import not_in_gateway, owners_of, without_owner
from fleet.model import GroupKey

RED, BLUE = GroupKey("a", "red-epp", 9002), GroupKey("a", "blue-epp", 9002)


def _map(**phases: str) -> dict[str, Any]:
    pools = [
        {
            "group": f"a/{name}-epp:9002",
            "owners": [] if phase == "unowned" else ["worker-0"],
            "phase": phase,
        }
        for name, phase in phases.items()
    ]
    return {"pools": pools}


def test_only_acknowledged_owners_count() -> None:
    """`opening` is placed, not acknowledged; a moving group's owner has acknowledged long ago."""
    owners = owners_of(_map(red="owned", blue="opening", green="moving", grey="unowned"))
    assert set(owners) == {"a/red-epp:9002", "a/green-epp:9002"}


def test_a_group_that_the_map_lacks_has_no_owner() -> None:
    """The manifests say what must be there, not the map."""
    assert without_owner([BLUE, RED], owners_of(_map(red="owned"))) == (BLUE,)
    assert without_owner([BLUE, RED], owners_of(_map(red="owned", blue="owned"))) == ()


def test_the_gateway_must_show_the_owner_in_every_cluster() -> None:
    """An old address, or one of two clusters without it, is not ready."""
    owners = {str(RED): ("worker-0",)}
    addresses = {"worker-0": "127.0.0.1:1", "worker-1": "127.0.0.1:2"}
    pickers = {RED: ("x", "y")}
    new, old = frozenset({"127.0.0.1:1"}), frozenset({"127.0.0.1:2"})
    assert not_in_gateway(owners, addresses, pickers, {"x": new, "y": new}) == ()
    assert not_in_gateway(owners, addresses, pickers, {"x": new, "y": old}) == (RED,)
    assert not_in_gateway(owners, addresses, pickers, {"x": new}) == (RED,)
    assert not_in_gateway({}, addresses, pickers, {"x": new, "y": new}) == (RED,)

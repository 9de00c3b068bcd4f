"""Routes as EndpointSlices: names, labels, form; and what is read back from good and bad ones."""

import copy
from typing import Any

import pytest

from coordinator.routes.contract import Route
from coordinator.routes.slice_format import (
    IPV4,
    IPV6,
    decode,
    encode,
    families_of,
    slice_name,
)
from fleet.errors import RouteError
from fleet.model import EpochVersion, GroupKey

A = GroupKey("ns1", "a-epp", 9002)


def made(addresses: tuple[str, ...] = ("192.0.2.1:9002",), family: str = IPV4) -> dict[str, Any]:
    route = Route(A, addresses, EpochVersion(3, 17))
    raw = encode(route, addresses, family, port_name="grpc-9002", fleet="f1")
    raw["metadata"] |= {"uid": "u1", "resourceVersion": "12"}
    return raw


def test_a_slice_is_what_gateways_read() -> None:
    """Istio wants the Service's port name; no targetRef, so that health is ours to say."""
    assert made() == {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(A, IPV4, "f1"),
            "namespace": "ns1",
            "uid": "u1",
            "resourceVersion": "12",
            "labels": {
                "kubernetes.io/service-name": "a-epp",
                "endpointslice.kubernetes.io/managed-by": "epp-fleet.dev",
                "epp-fleet.dev/fleet": "f1",
                "epp-fleet.dev/service-port": "9002",
            },
            "annotations": {"epp-fleet.dev/map-version": "3.17"},
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": ["192.0.2.1"],
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
        ],
        "ports": [{"name": "grpc-9002", "port": 9002, "protocol": "TCP", "appProtocol": "http2"}],
    }


def test_a_route_without_addresses_is_a_slice_without_endpoints() -> None:
    """The gateway's failureMode decides then."""
    assert made(())["endpoints"] == []


@pytest.mark.parametrize(
    ("addresses", "family"),
    [
        (("192.0.2.1:9002",), IPV4),
        (("192.0.2.1:19002", "192.0.2.2:19002"), IPV4),
        (("[2001:db8::1]:9002",), IPV6),
        ((), IPV4),
    ],
)
def test_what_is_written_is_read(addresses: tuple[str, ...], family: str) -> None:
    """All of it, and it is sound."""
    found = decode(made(addresses, family), "f1")
    assert found is not None
    assert found.sound
    assert (found.group, found.addresses, found.version) == (A, addresses, EpochVersion(3, 17))
    assert (found.port_name, found.family, found.resource_version) == ("grpc-9002", family, "12")


def test_names_are_bounded_distinct_and_stable() -> None:
    """Two groups, two fleets, two families never meet at one name."""
    long = "x" * 63
    groups = [
        A,
        GroupKey("ns1", "a-epp", 9003),
        *(GroupKey("ns1", long[:n], 65535) for n in (62, 63)),
    ]
    names = {slice_name(g, family, f) for g in groups for family in (IPV4, IPV6) for f in "fg"}
    assert len(names) == 16
    assert max(map(len, names)) <= 63
    assert slice_name(A, IPV4, "f1") == "a-epp-9002-4-67019472"


@pytest.mark.parametrize(
    "group",
    [
        GroupKey("ns1", "../x", 1),
        GroupKey("../x", "a", 1),
        GroupKey("ns1", "a", 0),
        GroupKey("ns1", "a", 65536),
        GroupKey("ns1", "A", 1),
        GroupKey("ns1", "", 1),
    ],
)
def test_what_is_no_name_never_becomes_a_path(group: GroupKey) -> None:
    """It is refused by the name that it has."""
    with pytest.raises(RouteError, match="not a namespace, Service and port"):
        slice_name(group, IPV4, "f1")


@pytest.mark.parametrize(
    "addresses",
    [("host:9002",), ("192.0.2.1",), ("192.0.2.1:0",), ("192.0.2.1:1", "192.0.2.2:2")],
)
def test_a_route_that_no_slice_can_say_is_refused(addresses: tuple[str, ...]) -> None:
    """Slices hold addresses, and one port for all."""
    with pytest.raises(RouteError, match="ns1/a-epp:9002"):
        families_of(Route(A, addresses, EpochVersion(1, 1)))


def test_addresses_are_parted_by_family() -> None:
    """`addressType` never changes, and no slice holds both."""
    route = Route(A, ("192.0.2.1:1", "[2001:db8::1]:2", "192.0.2.2:1"), EpochVersion(1, 1))
    assert families_of(route) == {
        IPV4: ("192.0.2.1:1", "192.0.2.2:1"),
        IPV6: ("[2001:db8::1]:2",),
    }


@pytest.mark.parametrize("label", ["endpointslice.kubernetes.io/managed-by", "epp-fleet.dev/fleet"])
def test_a_slice_of_somebody_else_is_none_of_ours(label: str) -> None:
    """Another manager's, or another fleet's."""
    raw = made()
    raw["metadata"]["labels"][label] = "endpointslice-controller.k8s.io"
    assert decode(raw, "f1") is None
    del raw["metadata"]["labels"][label]
    assert decode(raw, "f1", expected=A) is None


SPOILED: list[tuple[str, Any]] = [
    ("metadata.annotations", None),
    ("metadata.annotations", {"epp-fleet.dev/map-version": "x"}),
    ("metadata.name", "a-copy"),
    ("endpoints", [{"addresses": ["192.0.2.1"], "conditions": {"ready": False}}]),
    ("endpoints", [{"addresses": ["192.0.2.1"], "conditions": {"ready": True, "serving": False}}]),
    ("endpoints", [{"addresses": ["192.0.2.1"]}]),
    (
        "endpoints",
        [{"addresses": ["192.0.2.1"], "conditions": {"ready": True, "terminating": True}}],
    ),
    (
        "endpoints",
        [
            {
                "addresses": ["192.0.2.1"],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": "p"},
            }
        ],
    ),
    ("ports", []),
    ("ports", None),
    ("ports", [{"name": "grpc-9002", "port": 9002, "protocol": "UDP"}]),
    ("addressType", "FQDN"),
]


@pytest.mark.parametrize(("path", "value"), SPOILED)
def test_a_slice_in_any_other_form_is_not_trusted(path: str, value: Any) -> None:
    """It is of our group all the same, so that it can be written again."""
    raw = copy.deepcopy(made())
    *above, last = path.split(".")
    place = raw
    for step in above:
        place = place[step]
    place[last] = value
    found = decode(raw, "f1")
    assert found is not None
    assert (found.group, found.sound) == (A, False)


def test_a_slice_without_its_group_is_known_by_its_name() -> None:
    """Somebody took the label away: whoever looks for the group's slice finds it."""
    raw = made()
    del raw["metadata"]["labels"]["epp-fleet.dev/service-port"]
    assert decode(raw, "f1") is None
    found = decode(raw, "f1", expected=A)
    assert found is not None
    assert (found.group, found.sound) == (A, False)


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {"labels": []}}])
def test_nonsense_is_no_slice(raw: dict[str, Any]) -> None:
    """And no exception."""
    assert decode(raw, "f1") is None

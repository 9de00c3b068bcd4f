"""What the tests' gateways make of Services and slices: as Istio reads them."""

from typing import Any

from fleet.model import GroupKey
from tests.slice_follower import joined

A, B = GroupKey("ns", "epp", 9101), GroupKey("ns", "epp", 9102)
SERVICE: dict[str, Any] = {
    "metadata": {"namespace": "ns", "name": "epp"},
    "spec": {"ports": [{"name": "grpc-a", "port": 9101}, {"name": "grpc-b", "port": 9102}]},
}


def _slice(port: str, number: int, *addresses: str, ready: bool | None = True) -> dict[str, Any]:
    return {
        "ports": [{"name": port, "port": number}],
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": ready}} for address in addresses
        ],
    }


def test_ports_meet_by_name_and_lead_to_the_slices_number() -> None:
    """The number in the slice is where the worker listens; the Service's is only its own."""
    slices = [_slice("grpc-a", 9002, "192.0.2.1"), _slice("grpc-b", 9002, "192.0.2.2")]
    assert joined(SERVICE, slices) == {A: ("192.0.2.1:9002",), B: ("192.0.2.2:9002",)}


def test_a_port_of_another_name_leads_nowhere() -> None:
    """A gateway has no endpoint then, whatever the number."""
    assert joined(SERVICE, [_slice("other", 9101, "192.0.2.1")]) == {A: (), B: ()}


def test_all_slices_of_a_service_count_and_only_what_is_ready() -> None:
    """Ready unless it is said that it is not; IPv6 in brackets."""
    slices = [
        _slice("grpc-a", 9002, "192.0.2.3", ready=False),
        _slice("grpc-a", 9002, "192.0.2.2", ready=None),
        _slice("grpc-a", 9002, "2001:db8::1"),
    ]
    assert joined(SERVICE, slices)[A] == ("192.0.2.2:9002", "[2001:db8::1]:9002")

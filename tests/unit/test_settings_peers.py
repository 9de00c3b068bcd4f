"""How `worker.peers` is written."""

import pytest

from fleet.settings.peers import split_peers


def test_addresses_names_and_files() -> None:
    """Any mixture; blanks do not matter."""
    text = "10.0.0.1:9004, dns:workers.ns.svc:9004,file:/run/peers,[::1]:9004,,dns:[::1]:1"
    assert list(split_peers(text)) == [
        ("address", "10.0.0.1:9004"),
        ("dns", "workers.ns.svc:9004"),
        ("file", "/run/peers"),
        ("address", "[::1]:9004"),
        ("dns", "[::1]:1"),
    ]
    assert list(split_peers("")) == []


@pytest.mark.parametrize(
    "text", ["10.0.0.1", "host:", ":9004", "host:0", "host:70000", "host:x", "dns:host", "file:"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """With how it is written."""
    with pytest.raises(ValueError, match="write"):
        list(split_peers(f"10.0.0.1:9004,{text}"))

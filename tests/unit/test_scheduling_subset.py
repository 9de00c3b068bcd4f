"""Subset hints are compared as addresses."""

import pytest

from epp_worker.scheduling.subset import MAX_ITEMS, normalise, split_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1:8000", ("10.0.0.1", 8000)),
        (" 10.0.0.1 ", ("10.0.0.1", None)),
        ("[fd00::10]:8000", ("fd00::10", 8000)),
        ("[FD00:0:0::10]", ("fd00::10", None)),
        ("fd00:0:0::10", ("fd00::10", None)),
        ("::ffff:10.0.0.7", ("10.0.0.7", None)),
        ("[::ffff:10.0.0.7]:80", ("10.0.0.7", 80)),
        ("", None),
        ("10.0.0.1:", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:65536", None),
        ("10.0.0.1:8x", None),
        ("10.0.0.1:٣", None),
        ("[fd00::10", None),
        ("[fd00::10]8000", None),
        ("pod-a:8000", None),
        ("10.0.0:8000", None),
    ],
)
def test_split_address(text: str, expected: tuple[str, int | None] | None) -> None:
    """ip and port in one spelling, whatever the spelling given (ai-dynamo/dynamo#12063)."""
    assert split_address(text) == expected


def test_normalise() -> None:
    """Lists within items are taken apart; what is no address allows nothing."""
    items = ["10.0.0.1:8000,10.0.0.2", "[fd00:0::10]:8000", "junk", ""]
    assert normalise(items) == {"10.0.0.1:8000", "10.0.0.2", "[fd00::10]:8000"}


def test_hint_is_bounded() -> None:
    """A hint of any length costs a bounded amount of memory."""
    endless = ",".join(f"10.{i >> 8}.{i & 255}.1:{port}" for i in range(5000) for port in (1, 2))
    assert len(normalise([endless])) == MAX_ITEMS

"""How many moves may be asked for at once."""

import pytest

from coordinator.web.history import MAX_LIMIT, asked_of


@pytest.mark.parametrize("limit", ["1", "7", "0099", str(MAX_LIMIT)])
def test_a_number_of_moves(limit: str) -> None:
    """From 1 to the bound."""
    assert asked_of({"limit": limit}).limit == int(limit)


@pytest.mark.parametrize(
    "limit", ["", "0", "1001", "00001000000", "1" * 4000, "-1", "+1", "1.0", "²"]
)
def test_no_number_goes_beyond_the_bound(limit: str) -> None:
    """Leading zeros hide none: 00001000000 is a million, not 1."""
    with pytest.raises(ValueError, match="is no number from 1 to 1000"):
        asked_of({"limit": limit})

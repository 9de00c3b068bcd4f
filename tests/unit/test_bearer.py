"""The fleet's token: exactly that, and nothing near it."""

import pytest

from fleet.bearer import FleetToken


def test_the_token_itself_is_accepted() -> None:
    """As `Bearer <token>`."""
    assert FleetToken("secret").shown_by("Bearer secret")


@pytest.mark.parametrize(
    "shown", ["", "secret", "Bearer", "Bearer ", "bearer secret", "Bearer secret ", "Bearer \udcff"]
)
def test_anything_else_is_refused(shown: str) -> None:
    """Bytes that are no text included."""
    assert not FleetToken("secret").shown_by(shown)

"""The fleet's bearer token, as a caller must show it."""

import hmac


class FleetToken:
    """Compares an `authorization` value with the fleet's own, in constant time."""

    __slots__ = ("_expected",)

    def __init__(self, token: str) -> None:
        self._expected = f"Bearer {token}".encode()

    def shown_by(self, authorization: str) -> bool:
        """Whether `authorization` is exactly `Bearer <token>`."""
        given = authorization.encode(errors="surrogateescape")
        return hmac.compare_digest(given, self._expected)

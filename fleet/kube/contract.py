"""What the fleet asks of an API server: raw JSON in and out, errors of our own.

`fleet.kube.client` implements it on the `kubernetes` package (configuration, credentials, TLS);
`tests/fake_api_server.py` answers it over real HTTP with whatever faults a test wants. Paths are
absolute (`/api/v1/namespaces/ns1/services/x`), bodies plain dicts as the API has them.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

Raw = dict[str, Any]
"""One decoded JSON object."""

MERGE_PATCH = "application/merge-patch+json"
SERVER_SIDE_APPLY = "application/apply-patch+yaml"


class KubeApi(Protocol):
    """One API server and one identity. Every call raises only `fleet.errors.KubeError`s.

    Without `timeout_seconds` a call takes at most `kubernetes.request_timeout_seconds`. A 401 makes
    the client read its credentials anew and try once more.
    """

    @property
    def namespace(self) -> str:
        """The fleet's own namespace."""
        ...

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        """GET one object or one page of a list."""
        ...

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes | bytearray:
        """GET, the body as it came: for lists, so large that they are best decoded in slices."""
        ...

    async def create(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        """POST to a collection; KubeConflict if it exists."""
        ...

    async def replace(self, path: str, body: Raw, *, timeout_seconds: float | None = None) -> Raw:
        """PUT; KubeConflict unless a `metadata.resourceVersion` in the body is the latest."""
        ...

    async def patch(
        self,
        path: str,
        body: Raw,
        *,
        content_type: str = MERGE_PATCH,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        """PATCH."""
        ...

    async def delete(
        self, path: str, *, body: Raw | None = None, timeout_seconds: float | None = None
    ) -> Raw:
        """DELETE; `body` may hold preconditions."""
        ...

    def watch(
        self, path: str, *, params: Mapping[str, str], read_timeout_seconds: float
    ) -> AsyncIterator[Raw]:
        """The events of a watch, one decoded line each, until the server ends it.

        Silence for `read_timeout_seconds` raises KubeUnavailable (a half-open socket). An ERROR
        event is yielded like any other. Closing the iterator closes the connection.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...

"""The fixture `control_plane` and what belongs to it; a conftest imports what its tests use.

However many conftests import it, one control plane serves the whole session. It is skipped, with
the reason, where none can run.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator

import pytest

from fleet.errors import KubeError
from fleet.kube.client import KubeClient
from tests.control_plane.cluster import Cluster, any_cluster
from tests.control_plane.objects import make_namespace
from tests.control_plane.plane import ControlPlane
from tests.control_plane.programs import Missing


class _Shared:
    """The session's cluster, from its first user to its last."""

    def __init__(self) -> None:
        self._users = 0
        self._stack = contextlib.ExitStack()
        self._cluster: Cluster | None = None

    @contextlib.contextmanager
    def used(self) -> Iterator[Cluster]:
        if self._cluster is None:
            self._cluster = self._stack.enter_context(any_cluster())
        self._users += 1
        try:
            yield self._cluster
        finally:
            self._users -= 1
            if self._users == 0:
                self._cluster = None
                self._stack.close()


_shared = _Shared()


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """A real API server with the CRDs in it. Others use it too: work in a namespace of your own."""
    try:
        with _shared.used() as cluster:
            yield cluster
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def own_plane(control_plane: Cluster) -> ControlPlane:
    """Its processes; skipped where the cluster is not ours."""
    if control_plane.plane is None:
        pytest.skip("KUBECONFIG is set: that cluster is not ours to pause or audit")
    return control_plane.plane


@pytest.fixture
async def kube(control_plane: Cluster) -> AsyncIterator[KubeClient]:
    """A client that may do everything."""
    async with control_plane.connected() as client:
        yield client


@pytest.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    """A namespace of the test's own; it is deleted afterwards, without waiting."""
    name = await make_namespace(kube)
    yield name
    with contextlib.suppress(KubeError):  # the test may have paused the API server
        await kube.delete(f"/api/v1/namespaces/{name}")

"""What every publisher of routes promises, with EndpointSlices of a real API server."""

import secrets
from collections.abc import AsyncIterator

import pytest

from fleet.kube.client import KubeClient
from fleet.settings.model import KubernetesSettings, Settings
from tests.contract import test_routes as suite
from tests.contract.route_places import SlicePlace
from tests.control_plane.objects import ensure

NAMESPACE = "ns1"
"""That of the suite."""


@pytest.fixture
async def place(kube: KubeClient) -> AsyncIterator[SlicePlace]:
    """A fleet that no other test has."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await ensure(kube, "/api/v1/namespaces", body)
    watched = KubernetesSettings(watch_namespaces=NAMESPACE)
    made = SlicePlace(kube, Settings(fleet=f"t-{secrets.token_hex(4)}", kubernetes=watched))
    try:
        yield made
    finally:
        await made.empty()
        await made.close()


# The same functions, found here by pytest with the place of this module.
for _name, _test in vars(suite).items():
    if _name.startswith("test_") and "place" in _test.__code__.co_varnames:
        globals()[_name] = _test

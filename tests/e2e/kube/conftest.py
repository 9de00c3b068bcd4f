"""One fleet in one cluster for all tests of this folder, as a real one goes on from one day to the
next: a test takes it as it is, and leaves three workers and two coordinators behind.

Its network is its own (EndpointSlices refuse loopback addresses), so is its control plane.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.control_plane.cluster import Cluster, running_cluster
from tests.control_plane.programs import Missing
from tests.kustomize import NoKustomize, find
from tests.own_network import NoNetwork, own_network
from tests.slice_estate import SliceEstate, one_service, service_each, slice_estate

QUICK = {"worker": {"quiet_seconds": 2.0}}
"""How long a leaving worker waits for strays; the propagation time is the default, 1 s."""


@pytest.fixture(scope="package")
def plane_apart() -> Iterator[Cluster]:
    """A control plane in a network of its own, in which the tests of this folder are too."""
    try:
        find()
        with own_network(), running_cluster() as cluster:
            yield cluster
    except (Missing, NoKustomize, NoNetwork) as missing:
        pytest.skip(str(missing))


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def estate(
    plane_apart: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[SliceEstate]:
    """Pools of both layouts, served, under both ways through Envoy."""
    folder: Path = tmp_path_factory.mktemp("slices")
    pools = (*service_each(3), *one_service(3))
    async with slice_estate(folder, plane_apart, pools, worker_settings=QUICK) as made:
        yield made

"""The fleet that is measured, on a control plane of its own: two coordinators, three workers, and
a gateway's eyes and hands.
"""

import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from fleet.kube.contract import KubeApi
from fleet.model import GroupKey
from tests.control_plane.cluster import Cluster, running_cluster
from tests.control_plane.objects import make_namespace
from tests.control_plane.plane import ControlPlane
from tests.deployed import Installed, installed
from tests.kube_fleet import FLEET, KubeFleet
from tests.soak.model_servers import running_model_servers
from tests.soak.picks import Gateway
from tests.soak.slices import Slices, followed
from tests.valkey import Valkey, running_valkey

WORKER_COUNT = 3
COORDINATOR_COUNT = 2


def say(text: str) -> None:
    """A line of progress."""
    sys.stderr.write(f"  {text}\n")
    sys.stderr.flush()


class Estate(KubeFleet):
    """All that a scenario may touch.

    Attributes:
        gateway: picks through the addresses of slices.
    """

    def __init__(
        self,
        folder: Path,
        api: KubeApi,
        plane: ControlPlane,
        home: Installed,
        tenant: str,
        valkey: Valkey,
        slices: Slices,
        gateway: Gateway,
    ) -> None:
        super().__init__(folder, api, home, tenant, valkey)
        self.plane = plane
        self.slices = slices
        self.gateway = gateway

    def group(self, pool: str) -> GroupKey:
        """Where a pool's gateways ask."""
        return GroupKey(self.tenant, f"{pool}-epp", 9002)

    def authority(self, pool: str) -> str:
        """What they call it."""
        return f"{pool}-epp.{self.tenant}.svc:9002"

    async def pick(self, pool: str) -> str:
        """One request, through the address that its slice names.

        Raises:
            AssertionError: it names none.
            NoPick: there was no endpoint.
        """
        address = await self.slices.address(self.group(pool), 0.0)
        return await self.gateway.pick(address, self.authority(pool))


@contextlib.asynccontextmanager
async def estate(folder: Path, *, audit: bool = True) -> AsyncIterator[Estate]:
    """A control plane of its own, a fleet that is installed and not started, an empty tenant."""
    async with AsyncExitStack() as stack:
        say("starting the control plane")
        cluster: Cluster = stack.enter_context(running_cluster(audit=audit))
        assert cluster.plane is not None
        api = await stack.enter_async_context(cluster.connected(request_timeout_seconds=30.0))
        own, tenant = await make_namespace(api), await make_namespace(api, prefix="tenant")
        home = await stack.enter_async_context(installed(cluster, api, own, fleet=FLEET))
        valkey = stack.enter_context(running_valkey())
        await stack.enter_async_context(running_model_servers())
        slices = await stack.enter_async_context(followed(api, FLEET))
        gateway = await stack.enter_async_context(Gateway())
        made = Estate(folder, api, cluster.plane, home, tenant, valkey, slices, gateway)
        stack.callback(made.stop)
        await made.prepare(workers=WORKER_COUNT, coordinators=COORDINATOR_COUNT)
        try:
            yield made
        except BaseException:
            sys.stderr.write(made.logs() + "\n")
            raise

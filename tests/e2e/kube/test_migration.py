"""docs/migration.md, step by step, with its own manifests and commands, while requests flow.

The old picker is a process with a pod and a Service of the usual kind, whose slices Kubernetes' own
controller writes. Gateways follow the pool's endpointPickerRef as gateways do: requests that begin
after it changed go to the other Service.
"""

import asyncio
import contextlib
import os
import random
import re
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from fleet.clock import SystemClock
from fleet.local.model_config import ModelServer
from fleet.local.model_engine import Speed
from fleet.local.traffic import Target, Traffic
from fleet.model import Endpoint, GroupKey, Pool, PoolRef
from tests.control_plane.objects import delete_pod, eventually, make_pod
from tests.kube_fleet import NODE
from tests.kustomize import ROOT
from tests.lone_picker import LonePicker
from tests.own_network import WORKERS, pod_ip
from tests.slice_estate import PORT, Counts, SliceEstate, model_servers
from tests.slice_gateway import WAYS, SliceGateway

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(180)]

TEXT = (ROOT / "docs" / "migration.md").read_text()
POOL, OLD, NEW = "llama-8b", "llama-8b-epp", "llama-8b-fleet"
PER_SECOND = 20.0
LAG_SECONDS = 1.0
"""How long gateways go on to ask the former Service when a pool names another."""

FIRST_POD = 200
"""Of the pods' addresses; other tests' pods come before."""

PICKER = f"{WORKERS}.240"
PICKS, IN_FLIGHT = "epp_fleet_pool_picks_total", "epp_fleet_inflight_requests"


def commands(part: str, step: str) -> list[str]:
    """What a step of a part of the document has one type."""
    section = TEXT.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    text = section.partition(f"\n**{step}. ")[2].partition("\n**")[0]
    blocks = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@dataclass
class Scene:
    """The pool that moves, and what a tenant does with it.

    Attributes:
        url: by way and Service: where a gateway asks for the pool by it.
    """

    estate: SliceEstate
    gateway: SliceGateway
    kubeconfig: Path
    folder: Path

    @property
    def tenant(self) -> str:
        return self.estate.fleet.tenant

    async def type(self, *lines: str) -> None:
        """Commands of the document, in the tenant's namespace here.

        Raises:
            AssertionError: one failed.
        """
        for line in lines:
            command = re.sub(r"-n acme\b", f"-n {self.tenant}", line)
            process = await asyncio.create_subprocess_shell(
                command,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.folder),
                    "KUBECONFIG": str(self.kubeconfig),
                },
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            async with asyncio.timeout(60.0):
                said, _ = await process.communicate()
            assert process.returncode == 0, f"{command}: {said.decode()}"

    async def picker(self) -> str:
        """The Service that the pool names."""
        pool = await self.estate.fleet.pool(POOL)
        return str(pool["spec"]["endpointPickerRef"]["name"])

    def target(self, way: str, service: str) -> Target:
        url = f"{self.gateway.urls[way]}/{self.tenant}/{service}/v1/chat/completions"
        return Target(url, f"model-of-{POOL}", f"{self.tenant}/{POOL}-")

    def addresses(self, service: str) -> tuple[str, ...]:
        """What slices say."""
        group = GroupKey(self.tenant, service, 9002)
        return self.gateway.follower.addresses.get(group, ())

    @contextlib.asynccontextmanager
    async def old_picker(self) -> AsyncIterator[LonePicker]:
        """Its process and its pod, until gateways find it."""
        endpoints = [f"{pod_ip(FIRST_POD + number)}:{PORT}" for number in range(2)]
        api = self.estate.fleet.api
        with LonePicker(self.folder, f"{PICKER}:9002", endpoints) as picker:
            # On a Node: else Kubernetes' controller leaves it out.
            name, labels = f"{OLD}-0", {"app": OLD}
            await make_pod(api, self.tenant, name, labels=labels, ip=PICKER, node=NODE)
            await self.until_at(OLD, f"{PICKER}:9002")
            yield picker

    async def until_at(self, service: str, *addresses: str) -> None:
        """Until both ways to a Service lead to these addresses and no others."""

        async def there() -> bool:
            return self.addresses(service) == addresses

        await eventually(there, f"{service} at {addresses}")
        await self.gateway.services.settled()

    async def remove_old_picker(self, picker: LonePicker) -> None:
        """What a ReplicaSet and a kubelet do when nobody asks it any more."""
        await delete_pod(self.estate.fleet.api, self.tenant, f"{OLD}-0")
        assert await asyncio.to_thread(picker.leave) == 0
        await self.until_at(OLD)

    @contextlib.asynccontextmanager
    async def traffic(self) -> AsyncIterator[Counts]:
        """Requests by both ways, to whom the pool names at the moment."""
        counts, clock, chance = Counts(), SystemClock(), random.Random(5)
        service = await self.picker()
        targets = {way: [self.target(way, service)] for way in WAYS}
        running = {way: Traffic(self.estate.http, targets[way], clock, chance) for way in targets}

        async def follow() -> None:
            at = service
            while True:
                named = await self.picker()
                if named != at:
                    await asyncio.sleep(LAG_SECONDS)
                    at = named
                    for way, wanted in targets.items():
                        wanted[:] = [self.target(way, at)]
                await asyncio.sleep(0.05)

        tasks = [asyncio.create_task(each.run(PER_SECOND)) for each in running.values()]
        following = asyncio.create_task(follow())
        try:
            yield counts
        finally:
            for each in running.values():
                each.stop()
            await asyncio.gather(*tasks)
            following.cancel()
            for way, each in running.items():
                counts.add(way, each)

    async def fleets(self, metric: str) -> float:
        """The sum of a metric of this pool over the fleet's workers."""
        figures = [await self.estate.fleet.figures(name) for name in self.estate.fleet.workers]
        return sum(
            value
            for each in figures
            for line, value in each.items()
            if line.startswith(f"{metric}{{") and f'pool="{POOL}"' in line
        )

    async def quiet(self) -> bool:
        """Whether no answer of the fleet's is under way."""
        return await self.fleets(IN_FLIGHT) == 0


@pytest_asyncio.fixture(loop_scope="package")
async def scene(estate: SliceEstate, tmp_path: Path) -> AsyncIterator[Scene]:
    """The pool with its old picker's Service, as the document begins, and gateways before it."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl: the document's commands are its")
    fleet = estate.fleet
    tenant = fleet.tenant
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    service, pool = yaml.safe_load_all(block.replace("acme", tenant))
    await fleet.api.create(f"/api/v1/namespaces/{tenant}/services", service)
    assert await fleet.apply(POOL, **pool["spec"])
    servers = []
    for number in range(2):
        ip = pod_ip(FIRST_POD + number)
        await fleet.make_pod(POOL, number, ip)
        servers.append(
            ModelServer(f"{ip}:{PORT}", f"{tenant}/{POOL}-{number}", (f"model-of-{POOL}",))
        )
    # The same pool by either Service; a gateway has one route at a time.
    routes = [
        Pool(PoolRef(tenant, name), "", {"app": POOL}, (PORT,), GroupKey(tenant, name, 9002))
        for name in (OLD, NEW)
    ]
    endpoints = [Endpoint(server.pod, "", server.address, 0) for server in servers]
    folder = tmp_path / "gateway"
    folder.mkdir()
    with model_servers(tmp_path, servers, Speed(token_seconds=0.05)):
        async with SliceGateway(folder, fleet.api, routes, endpoints) as gateway:
            kubeconfig = fleet.home.cluster.kubeconfig
            yield Scene(estate, gateway, kubeconfig, tmp_path)
    await _forget(estate)


async def _forget(estate: SliceEstate) -> None:
    """Leave the others' namespace as it was."""
    api, core = estate.fleet.api, f"/api/v1/namespaces/{estate.fleet.tenant}"
    await estate.fleet.withdraw(POOL)
    await api.delete(f"{core}/services/{OLD}")
    for pod in (f"{OLD}-0", f"{POOL}-0", f"{POOL}-1"):
        await delete_pod(api, estate.fleet.tenant, pod)


async def _refused(scene: Scene) -> bool:
    path = f"/api/v1/namespaces/{scene.tenant}/events"
    events = (await scene.estate.fleet.api.get(path))["items"]
    return any(
        each["reason"] == "ServiceHasSelector" and each["involvedObject"]["name"] == POOL
        for each in events
    )


async def test_to_the_fleet_and_back(scene: Scene) -> None:
    """No request fails at any step, both pickers have had their part, and the old one's Service is
    as it was."""
    service = f"/api/v1/namespaces/{scene.tenant}/services/{OLD}"
    before = await scene.estate.fleet.api.get(service)
    async with scene.old_picker() as old, scene.traffic() as forth:
        await eventually(lambda: _refused(scene), "the fleet leaves the pool alone")
        await scene.type(*[line for line in commands("To the fleet", "2") if "kubectl" in line])
        assert len(scene.addresses(NEW)) == 1
        await scene.gateway.services.settled()
        assert await scene.fleets(PICKS) == 0
        await scene.type(*commands("To the fleet", "3"))
        assert await scene.picker() == NEW
        await eventually(lambda: _reached(scene, PER_SECOND), "the fleet picks")
        await eventually(lambda: _idle(old), "the old picker's answers are through")
        await scene.type(commands("To the fleet", "4")[0])
        await scene.remove_old_picker(old)
        alone = await scene.fleets(PICKS)
        await eventually(lambda: _reached(scene, alone + PER_SECOND), "the fleet alone")
        had = old.streams()[0]
    async with scene.old_picker() as again, scene.traffic() as back:
        await scene.type(*commands("Back", "2"), *commands("Back", "3"))
        assert await scene.picker() == OLD
        await eventually(lambda: _began(again, PER_SECOND), "the old picker picks")
        await eventually(scene.quiet, "the fleet's answers are through")
        await scene.type(*commands("Back", "4"))
        await scene.until_at(NEW)
        alone = again.streams()[0]
        await eventually(lambda: _began(again, alone + PER_SECOND), "the old picker alone")
    for counts in (forth, back):
        assert counts.lost == 0, str(counts)
        assert counts.least > PER_SECOND, str(counts)
    assert had > PER_SECOND
    after = await scene.estate.fleet.api.get(service)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def _reached(scene: Scene, picks: float) -> bool:
    return await scene.fleets(PICKS) >= picks


async def _began(picker: LonePicker, streams: float) -> bool:
    return picker.streams()[0] >= streams


async def _idle(picker: LonePicker) -> bool:
    return picker.streams()[1] == 0

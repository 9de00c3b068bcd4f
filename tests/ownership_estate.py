"""Fleets' estates over an API server: what a coordinator does about pools, without placing them."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from coordinator.estate import Estate
from coordinator.ownership import Decision, ServiceKey
from coordinator.services import ServiceKeeper
from fleet.clock import SystemClock
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.names import CONTROLLER_NAME
from fleet.model import EpochVersion, GroupKey, LeaderInfo, PoolRef, ShardMap
from fleet.model.pools import ALSO_SERVE
from fleet.settings.model import KubernetesSettings, OwnershipSettings, Settings
from fleet.sources.kubernetes import KubeSource
from tests.kube_sources import QUICK, until

POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/{}/inferencepools"
CLOCK = SystemClock()
NO_PLACEMENTS = ShardMap("f", EpochVersion(1, 1), 0.0, LeaderInfo("c", "h:1", "h:2"), {})


def controller_of(fleet: str) -> str:
    """The controller's name of a fleet."""
    return f"example.com/{fleet}"


def fleet_settings(fleet: str, namespace: str, **ownership: str) -> Settings:
    """A fleet that watches one namespace."""
    return Settings(
        fleet=fleet,
        kubernetes=KubernetesSettings(watch_namespaces=namespace),
        ownership=OwnershipSettings(controller_name=controller_of(fleet), **ownership),
    )


def pool_body(
    name: str,
    *,
    service: str | None = "epp",
    port: int = 9002,
    controller: str | None = None,
    also: str | None = None,
    namespace: str = "ns",
) -> Raw:
    """An InferencePool of v1."""
    annotations = {CONTROLLER_NAME: controller, ALSO_SERVE: also}
    spec: Raw = {
        "selector": {"matchLabels": {"app": name}},
        "targetPorts": [{"number": 8000}],
    }
    if service is not None:
        spec["endpointPickerRef"] = {"name": service, "port": {"number": port}}
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {k: v for k, v in annotations.items() if v is not None},
        },
        "spec": spec,
    }


@dataclass
class RunningEstate:
    """One coordinator's estate.

    Attributes:
        leads: whether it may write.
    """

    estate: Estate
    namespace: str
    leads: bool = True

    @property
    def services(self) -> ServiceKeeper:
        assert self.estate.services is not None
        return self.estate.services

    def groups(self) -> set[str]:
        """`service:port` of every route group."""
        return {f"{group.service}:{group.port}" for group in self.estate.groups.groups()}

    def decision(self, name: str) -> Decision | None:
        return self.estate.claims.decisions().get(PoolRef(self.namespace, name))

    def states(self, name: str) -> dict[str, str]:
        """Service -> state of what the pool is served through."""
        decision = self.decision(name)
        served = () if decision is None else decision.served
        return {each.group.service: each.state.value for each in served}

    def reasons(self, name: str) -> list[str]:
        decision = self.decision(name)
        return [] if decision is None else [each.reason.value for each in decision.refusals]

    def failure(self, service: str) -> str:
        """Why the Service could not be written; "" if it could."""
        failure = self.services.failures.get(ServiceKey(self.namespace, service))
        return "" if failure is None else failure.message

    async def serves(self, name: str, **states: str) -> None:
        """Wait until the pool is served through exactly these Services, in these states."""
        await self.until(lambda: self.states(name) == states, f"{name} by {states}")

    async def has_groups(self, *groups: str) -> None:
        """Wait until these are all route groups."""
        await self.until(lambda: self.groups() == set(groups), f"groups {groups}")

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition on what this estate says."""
        await until(condition, what)


def group(namespace: str, service: str, port: int = 9002) -> GroupKey:
    return GroupKey(namespace, service, port)


@asynccontextmanager
async def running_estate(
    api: KubeApi, settings: Settings, *, leads: bool = True
) -> AsyncIterator[RunningEstate]:
    """An estate of a coordinator that leads, with everything that belongs to it."""
    namespace = settings.kubernetes.watch_namespaces
    source = KubeSource(api, settings.kubernetes, CLOCK, random.Random(1), pace=QUICK)
    await source.start()
    running: RunningEstate
    estate = Estate(
        settings,
        source,
        api,
        me=f"coordinator-{settings.fleet}",
        leading=lambda: running.leads,
        shard_map=lambda: NO_PLACEMENTS,
        clock=CLOCK,
        rng=random.Random(2),
    )
    running = RunningEstate(estate, namespace, leads)
    assert estate.services is not None
    tasks = [asyncio.create_task(loop, name=name) for loop, name in estate.start()]
    tasks.append(asyncio.create_task(estate.services.run(lambda: running.leads)))
    try:
        async with asyncio.timeout(30):
            await estate.groups.wait_synced()
        yield running
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await estate.close()
        await source.close()

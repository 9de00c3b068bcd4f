"""A worker of two pools in a folder of manifests that a test rewrites."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from epp_worker.metrics import MetricsPage
from fleet.model import Hold
from fleet.settings.model import WorkerSettings
from tests import manifest_texts
from tests.worker_inprocess import DEADLINE, Gateway, Running, TestLeader, running_worker, until

CHAT = b'{"model":"m"}'
AUTHORITY = "pool-a-epp.ns1.svc:9002"


class Folder:
    """A manifests folder whose objects a test replaces as a whole, as a rename does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.objects: dict[str, manifest_texts.Raw] = {}

    def put(self, **objects: manifest_texts.Raw) -> None:
        self.objects.update(objects)
        self.write()

    def drop(self, *names: str) -> None:
        for name in names:
            del self.objects[name]
        self.write()

    def write(self) -> None:
        new = self.path / ".new"
        new.write_text(manifest_texts.text(*self.objects.values()))
        new.rename(self.path / "all.yaml")


def pool(name: str = "pool-a", *, uid: str = "u1", **spec: object) -> manifest_texts.Raw:
    manifest = manifest_texts.pool(name, **spec)  # type: ignore[arg-type]
    manifest["metadata"]["uid"] = uid
    return manifest


def pod(name: str, ip: object, **labels: str) -> manifest_texts.Raw:
    return manifest_texts.pod(name, ip=ip, labels=labels or {"app": "pool-a"})


async def picks(gateway: Gateway, count: int = 12) -> set[str]:
    return {await gateway.pick() for _ in range(count)}


async def becomes(running: Running, gateway: Gateway, wanted: set[str]) -> None:
    """Wait until the endpoints of pool-a are exactly `wanted`; then each is picked, no other is."""
    await until(lambda: known(running) == wanted, f"the endpoints are {sorted(wanted)}")
    seen: set[str] = set()
    async with asyncio.timeout(DEADLINE):
        while seen != wanted:
            seen |= await picks(gateway)
            assert seen <= wanted
    assert await picks(gateway, 30) <= wanted


def known(running: Running, name: str = "pool-a") -> set[str]:
    """The endpoints of a pool in the worker's metrics."""
    figures = running.worker.figures()
    page = MetricsPage().render(figures).decode()
    prefix = 'epp_fleet_inflight_requests{endpoint="'
    return {
        line.removeprefix(prefix).partition('"')[0]
        for line in page.splitlines()
        if line.startswith(prefix) and f'pool="{name}"' in line
    }


def two_pools(path: Path) -> Folder:
    """Pools a and b, one pod each."""
    folder = Folder(path)
    folder.put(
        a=pool(),
        b=pool("pool-b"),
        a0=pod("a-0", "10.0.0.1"),
        b0=pod("b-0", "10.0.1.1", app="pool-b"),
    )
    return folder


@asynccontextmanager
async def owner_of_both(path: Path) -> AsyncIterator[Running]:
    """A worker that owns pools a and b."""
    own = WorkerSettings(
        host="127.0.0.1",
        ext_proc_port=0,
        health_port=0,
        internal_port=0,
        http_port=0,
        stray_hold_seconds=0.5,
    )
    async with running_worker(path, worker_settings=own) as worker:
        leader = TestLeader(worker.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(worker.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
        yield worker
        await leader.close()

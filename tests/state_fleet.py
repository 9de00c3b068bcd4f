"""Workers in one process that follow each other, led by the test."""

import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from epp_worker.group import Group
from epp_worker.scheduling.contract import Pick, PickRequest, Refusal
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.certificates import Certificates
from fleet.control.messages import WorkerPeer
from fleet.model import EpochVersion, Hold, PoolId, PoolRef, Share, ShareEntry
from fleet.sources.contract import Kind, ObjectKey
from tests import manifest_texts
from tests.worker_inprocess import Running, group_of, running_worker

ENDPOINTS = 2


def write_pool(folder: Path, name: str, endpoints: int = ENDPOINTS) -> None:
    """A pool with pods 10.0.0.1 and up."""
    folder.mkdir(exist_ok=True)
    pods = [
        manifest_texts.pod(f"{name}-{n}", labels={"app": name}, ip=f"10.0.0.{n}")
        for n in range(1, endpoints + 1)
    ]
    folder.joinpath(f"{name}.yaml").write_text(
        manifest_texts.text(manifest_texts.pool(name), *pods)
    )


class Fleet:
    """The workers by id; the test says who holds what."""

    def __init__(self) -> None:
        self.running: dict[str, Running] = {}
        self.version = 0

    def introduce(self, *dead: str, internal: Mapping[str, str] | None = None) -> None:
        """Tell each living worker of the others.

        Args:
            internal: other addresses than the workers' own.
        """
        known = {
            name: WorkerPeer(
                (internal or {}).get(name, one.worker.addresses.internal),
                one.worker.holdings.incarnation,
            )
            for name, one in self.running.items()
            if name not in dead
        }
        for name in known:
            self.running[name].worker.peers.introduce(known)

    def hold(self, worker: str, hold: Hold, owner: str | None, *pools: str) -> None:
        """Give a worker its share."""
        self.version += 1
        running = self.running[worker]
        entries = []
        for name in pools:
            pool = running.source.objects(Kind.POOL)[ObjectKey("ns1", name)]
            pool_id = PoolId(PoolRef("ns1", name), getattr(pool, "uid", ""))
            entries.append(ShareEntry(group_of(name), hold, (pool_id,), owner))
        incarnation = running.worker.holdings.incarnation
        version = EpochVersion(1, self.version)
        running.worker.apply(Share("default", worker, incarnation, version, tuple(entries)))

    def group(self, worker: str, pool: str = "pool-a") -> Group:
        """The group of a pool as a worker holds it."""
        group = self.running[worker].worker.holdings.get(group_of(pool))
        assert group is not None
        return group

    def pool(self, worker: str, pool: str = "pool-a") -> PoolState:
        """The pool as a worker sees it."""
        return self.group(worker, pool).states[PoolRef("ns1", pool)]

    def endpoint(self, worker: str, number: int, pool: str = "pool-a") -> EndpointState:
        """The endpoint 10.0.0.<number> as a worker sees it."""
        state = self.pool(worker, pool).find(f"10.0.0.{number}:8000")
        assert state is not None
        return state

    def pick(self, worker: str, pool: str = "pool-a") -> Pick:
        """One request."""
        picked = self.pool(worker, pool).pick(PickRequest("m", None, lambda _: None))
        assert not isinstance(picked, Refusal)
        return picked

    def scraped(self, worker: str, number: int, waiting: float, kv: float = 0.0) -> None:
        """The worker's scraper has read an endpoint, just now."""
        state = self.endpoint(worker, number)
        now = time.monotonic()
        state.scraped(waiting=waiting, running=0.0, kv=kv, at=now, inflight=state.inflight)


@contextlib.asynccontextmanager
async def fleet_of(
    folder: Path, *workers: str, certificates: Certificates | None = None
) -> AsyncIterator[Fleet]:
    """Workers over the manifests in `folder`, introduced to each other."""
    fleet = Fleet()
    async with contextlib.AsyncExitStack() as stack:
        for name in workers:
            running = running_worker(folder, worker_id=name, certificates=certificates)
            fleet.running[name] = await stack.enter_async_context(running)
        fleet.introduce()
        yield fleet

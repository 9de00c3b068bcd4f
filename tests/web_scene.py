"""A coordinator's HTTP side over a fleet that is made up: as many pools and workers as wanted."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client import CollectorRegistry

from coordinator.explain import Explained, ExplainedGroup, ExplainedRoute
from coordinator.ownership import Claimed
from coordinator.view import DrainConflict, EndpointsUnknown, NotLeading, UnknownPool
from coordinator.web import Web, start_web
from coordinator.whatif import Premises
from fleet.control.endpoint_messages import EndpointRow, PoolEndpoints
from fleet.kube.read_access import Decides
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Load,
    Member,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    PoolId,
    PoolRef,
    Reason,
    ShardMap,
    Signal,
)
from fleet.placement.considering import Considered, Verdict
from fleet.settings.model import PlacementSettings
from fleet.store.contract import Move

TOKEN = "the-fleets-token"
LEADER = LeaderInfo("coordinator-0", "127.0.0.1:8080", "127.0.0.1:8081")
OTHER = LeaderInfo("coordinator-1", "127.0.0.1:18080", "127.0.0.1:18081")

_TENANTS = ("acme", "globex", "initech", "umbrella", "hooli", "wonka", "stark", "tyrell")
_MODELS = ("llama-8b", "mistral-7b", "qwen-7b", "phi-4", "mixtral-8x7b", "gemma-9b", "llama-70b")


def pool_name(number: int) -> PoolRef:
    """The name of one of many pools."""
    model = _MODELS[number % len(_MODELS)]
    return PoolRef(_TENANTS[number % len(_TENANTS)], f"{model}-{number}")


FIRST = pool_name(0)


def placed(ref: PoolRef, owner: str | None, standby: str | None = None, **fields: Any) -> Placement:
    """One pool in a group of its own."""
    return Placement(
        group=GroupKey(ref.namespace, f"{ref.name}-epp", 9002),
        pools=(PoolId(ref, f"uid-{ref.name}"),),
        phase=fields.pop("phase", Phase.UNOWNED if owner is None else Phase.OWNED),
        owners=() if owner is None else (owner,),
        standby=standby,
        reason=fields.pop("reason", Reason.INITIAL),
        since=fields.pop("since", time.time() - 754),
        **fields,
    )


def member(number: int, **fields: Any) -> MemberStatus:
    """A worker that is well."""
    port = 20_000 + 4 * number
    state, why = fields.pop("state", MemberState.ALIVE), fields.pop("why", "")
    load = Load(12.5 + number % 9, 40 + number, 0.4)
    addresses = Addresses(*(f"10.0.{number}.7:{port + n}" for n in range(4)))
    made = Member(f"worker-{number}", "f3a9", addresses, load=load, version="1.4.0", **fields)
    signal = Signal.SILENT if state is MemberState.SUSPECT else None
    return MemberStatus(made, state, signal, 0, 0, why)


@dataclass
class Scene:
    """A `coordinator.view.View` by its fields."""

    placements: dict[GroupKey, Placement] = field(default_factory=dict)
    workers: list[MemberStatus] = field(default_factory=list)
    id: str = LEADER.id
    who: LeaderInfo | None = LEADER
    version: EpochVersion = EpochVersion(3, 17)  # noqa: RUF009 - immutable
    drains: list[tuple[str, bool]] = field(default_factory=list)
    past: list[Move] = field(default_factory=list)
    mute: bool = False
    current: ShardMap | None = None
    seen: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def publish(self, *changed: Placement, gone: Sequence[GroupKey] = ()) -> None:
        """Another version of the map."""
        if self.current is not None:
            self.version = self.version.next()
        self.placements = {**self.placements, **{each.group: each for each in changed}}
        for group in gone:
            del self.placements[group]
        lives = {each.member.id: each.member.incarnation for each in self.workers}
        self.current = ShardMap(
            "default", self.version, time.time(), LEADER, self.placements, lives
        )
        self.count()

    def count(self) -> None:
        """Have the workers' figures fit the map, and tell of news."""
        owned: dict[str, int] = {}
        standby: dict[str, int] = {}
        for each in self.placements.values():
            for owner in each.owners:
                owned[owner] = owned.get(owner, 0) + 1
            if each.standby:
                standby[each.standby] = standby.get(each.standby, 0) + 1
        self.workers = [
            replace(
                each,
                owned=owned.get(each.member.id, 0),
                standby=standby.get(each.member.id, 0),
                member=replace(each.member, seen=self.version),
            )
            for each in self.workers
        ]
        self.seen += 1
        self.news.set()
        self.news = asyncio.Event()

    def shard_map(self) -> ShardMap | None:
        return self.current

    def members(self) -> Sequence[MemberStatus]:
        return self.workers

    def leader(self) -> LeaderInfo | None:
        return self.who

    def leading(self) -> bool:
        return self.who is not None and self.who.id == self.id

    def revision(self) -> int:
        return self.seen

    async def after(self, revision: int) -> None:
        while self.seen == revision:
            await self.news.wait()

    def placement(self, ref: PoolRef) -> Placement | None:
        """Where a pool is."""
        found = self.placements.values()
        return next((each for each in found if each.pools[0].ref == ref), None)

    async def endpoints(self, ref: PoolRef) -> PoolEndpoints:
        placement = self.placement(ref)
        if placement is None:
            raise UnknownPool(str(ref))
        if not placement.owners:
            raise EndpointsUnknown(f"nobody owns {ref}, and only an owner knows its endpoints")
        owner = placement.owners[0]
        if self.mute:
            raise EndpointsUnknown(f"{owner}, the owner, at 10.0.0.7:9004: no answer within 1 s")
        rows = [
            EndpointRow(f"{ref.name}-{n}", f"10.4.0.{n + 1}:8000", True, 3.0 + n, n, 0.2 * n + 0.1)
            for n in range(4)
        ]
        rows = [replace_row(row, age_ms=220 + 130 * at) for at, row in enumerate(rows)]
        rows.append(EndpointRow(f"{ref.name}-4", "10.4.0.5:8000", False))
        head = ("default", owner, "f3a9", ref.namespace, ref.name, Hold.OWNER)
        return PoolEndpoints(*head, tuple(rows), len(rows), 4, 8.25)

    def explain(self, ref: PoolRef) -> Explained | None:
        placement = self.placement(ref)
        if placement is None:
            return None
        addresses = tuple(
            each.member.addresses.ext_proc
            for each in self.workers
            if each.member.id in placement.owners
        )
        route = ExplainedRoute(f"{ref.name}-epp", addresses, self.version)
        names = tuple(each.member.id for each in self.workers[:4])
        unwell = tuple(each for each in self.workers if each.why and each.member.id in names)
        group = ExplainedGroup(
            placement.group,
            None,
            None,
            placement,
            route,
            names,
            unwell=unwell,
            considered=_considered(placement),
        )
        decision = Claimed("the fleet claims all pools", ())
        return Explained(ref, "u", decision, (group,), (), self.version, self.leading())

    async def moves(self, limit: int) -> Sequence[Move]:
        return self.past[:limit]

    def skipped(self, ref: PoolRef) -> Sequence[str]:
        return ()

    def premises(self) -> Premises | None:
        if self.current is None:
            return None
        return Premises(self.current, tuple(self.workers), {}, None, PlacementSettings())

    def ready(self) -> str | None:
        return None

    def alive(self) -> bool:
        return True

    async def set_drain(self, worker: str, on: bool) -> None:
        if not self.leading():
            raise NotLeading(self.who)
        if (worker, on) in self.drains:
            raise DrainConflict(f"{worker} is draining already")
        self.drains.append((worker, on))
        self.workers = [
            replace(each, state=MemberState.DRAINING if on else MemberState.ALIVE)
            if each.member.id == worker
            else each
            for each in self.workers
        ]
        self.count()


def _considered(placement: Placement) -> tuple[Considered, ...]:
    """Owner and stand-by, as an explanation names them."""
    words = ((Verdict.OWNER, "took it over when its owner died"), (Verdict.STANDBY, "is kept warm"))
    names = (*placement.owners, placement.standby)
    return tuple(
        Considered(name, order, verdict, why, None, None)
        for order, (name, (verdict, why)) in enumerate(zip(names, words, strict=False), 1)
        if name is not None
    )


def replace_row(row: EndpointRow, *, age_ms: int) -> EndpointRow:
    """The same endpoint, read so long ago."""
    return EndpointRow(
        row.pod, row.address, row.ready, row.running, row.waiting, row.kv, age_ms, row.inflight
    )


def scene_of(pools: int, workers: int) -> Scene:
    """All pools owned, spread evenly."""
    scene = Scene(workers=[member(number) for number in range(workers)])
    for number in range(pools):
        owner, standby = number % workers, (number * 7 + 1) % workers
        names = (
            f"worker-{owner}",
            f"worker-{standby if standby != owner else (owner + 1) % workers}",
        )
        placement = placed(pool_name(number), *names)
        scene.placements[placement.group] = placement
    scene.publish()
    return scene


def change(scene: Scene, ref: PoolRef, **fields: Any) -> None:
    """Another version of the map, in which one pool is other."""
    found = scene.placement(ref)
    assert found is not None
    scene.publish(replace(found, **fields))


@asynccontextmanager
async def served(scene: Scene, access: Decides | None = None) -> AsyncIterator[Web]:
    """Its HTTP side on loopback."""
    web = await start_web(
        scene,
        host="127.0.0.1",
        port=0,
        token=TOKEN,
        registry=CollectorRegistry(),
        access=access,
    )
    try:
        yield web
    finally:
        await web.close()

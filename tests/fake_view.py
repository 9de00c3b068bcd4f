"""A View in memory for the coordinator's HTTP side, and a client of that."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from multidict import CIMultiDictProxy

from coordinator.explain import Explained
from coordinator.view import UnknownPool
from coordinator.web import Web
from coordinator.whatif import Premises
from fleet.control.endpoint_messages import PoolEndpoints
from fleet.model import EpochVersion, LeaderInfo, MemberStatus, PoolRef, ShardMap
from fleet.store.contract import Move

TOKEN = "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
OTHER = LeaderInfo("coordinator-1", "127.0.0.1:18080", "127.0.0.1:18081")


def empty_map(version: int) -> ShardMap:
    return ShardMap("default", EpochVersion(1, version), 0.0, OTHER, {})


@dataclass
class FakeView:
    """A coordinator by its fields."""

    id: str = "coordinator-0"
    map: ShardMap | None = None
    who: LeaderInfo | None = OTHER
    not_ready: str | None = None
    living: bool = True
    refusal: Exception | None = None
    hang: bool = False
    drains: list[tuple[str, bool]] = field(default_factory=list)
    explained: dict[PoolRef, Explained] = field(default_factory=dict)
    skips: tuple[str, ...] = ()
    basis: Premises | None = None
    past: tuple[Move, ...] = ()
    workers: tuple[MemberStatus, ...] = ()
    told: dict[PoolRef, PoolEndpoints | Exception] = field(default_factory=dict)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    seen: int = 0
    leads: bool = False
    no_moves: Exception | None = None

    def shard_map(self) -> ShardMap | None:
        return self.map

    def members(self) -> Sequence[MemberStatus]:
        return self.workers

    def leader(self) -> LeaderInfo | None:
        return self.who

    def leading(self) -> bool:
        return self.leads

    def revision(self) -> int:
        return self.seen

    async def after(self, revision: int) -> None:
        while self.seen == revision:
            await self.news.wait()

    def change(self, **fields: Any) -> None:
        """Set fields, and tell whoever waits."""
        for name, value in fields.items():
            setattr(self, name, value)
        self.seen += 1
        self.news.set()
        self.news = asyncio.Event()

    async def endpoints(self, ref: PoolRef) -> PoolEndpoints:
        told = self.told.get(ref, UnknownPool(str(ref)))
        if isinstance(told, Exception):
            raise told
        return told

    def explain(self, ref: PoolRef) -> Explained | None:
        return self.explained.get(ref)

    async def moves(self, limit: int) -> Sequence[Move]:
        if self.no_moves is not None:
            raise self.no_moves
        return self.past[:limit]

    def skipped(self, ref: PoolRef) -> Sequence[str]:
        return self.skips

    def premises(self) -> Premises | None:
        return self.basis

    def ready(self) -> str | None:
        return self.not_ready

    def alive(self) -> bool:
        return self.living

    async def set_drain(self, worker: str, on: bool) -> None:
        if self.hang:
            await asyncio.Event().wait()
        if self.refusal is not None:
            raise self.refusal
        self.drains.append((worker, on))


@dataclass
class Served:
    """A running listener and a client of it."""

    view: FakeView
    web: Web
    client: aiohttp.ClientSession

    async def ask(
        self, method: str, path: str, **options: Any
    ) -> tuple[int, Any, CIMultiDictProxy[str]]:
        """Status, body (JSON where it is) and headers; follows no redirect."""
        url = f"http://127.0.0.1:{self.web.port}{path}"
        async with self.client.request(method, url, allow_redirects=False, **options) as response:
            text = await response.text()
            if response.content_type == "application/json" and text:
                return response.status, json.loads(text), response.headers
            return response.status, text, response.headers

    async def error(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        """Status and code of an error, whose form is checked."""
        status, body, _ = await self.ask(method, path, **options)
        assert set(body) == {"error"}
        assert set(body["error"]) == {"code", "message"}
        assert body["error"]["message"]
        return status, body["error"]["code"]

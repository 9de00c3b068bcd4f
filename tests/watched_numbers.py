"""A list+watch of numbered objects over a scripted API server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fleet.errors import KubeGone, KubeNotFound, KubeUnavailable
from fleet.kube.contract import Raw
from fleet.kube.listwatch import ListWatch
from fleet.kube.listwatch_cache import Delta
from fleet.kube.listwatch_events import Collection
from fleet.kube.listwatch_pace import Pace
from tests.scripted_kube import FOREVER, Highest, LoopClock, Script, ScriptedKube

AWAY = KubeUnavailable("no answer")
GONE = KubeGone("expired", status=410)
NOT_FOUND = KubeNotFound("no such kind", status=404)
API = "/apis/g/v1"


class Watched:
    """A running list+watch of numbered objects, its client and what it told."""

    def __init__(self, kube: ScriptedKube, loop: ListWatch[int], told: list[str]) -> None:
        self.kube = kube
        self.loop = loop
        self.told = told

    @property
    def names(self) -> set[str]:
        return {key.name for key in self.loop.values}


def number(raw: Raw) -> int:
    value: int = raw.get("value", 0)
    return value


@asynccontextmanager
async def watched(
    lists: Sequence[bytes | Exception],
    watches: Sequence[Script] = (FOREVER,),
    *,
    pace: Pace | None = None,
    discovered: Raw | Exception | None = None,
    clock: LoopClock | None = None,
    **options: Any,
) -> AsyncIterator[Watched]:
    kube = ScriptedKube(lists, watches)
    if discovered is not None:
        kube.discovered = discovered
    told: list[str] = []

    def tell(deltas: Sequence[Delta[int]]) -> None:
        for each in deltas:
            sign = "+" if each.old is None else "-" if each.new is None else "~"
            told.append(sign + each.key.name)

    loop = ListWatch(
        kube,
        Collection(API, "things"),
        keep=number,
        told=tell,
        pace=pace or Pace(),
        clock=clock or LoopClock(),
        rng=Highest(),
        **options,
    )
    loop.start()
    try:
        yield Watched(kube, loop, told)
    finally:
        await loop.close()

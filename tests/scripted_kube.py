"""An API server's client for one collection that plays scripts, in virtual time."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, NamedTuple

from fleet.kube.contract import Raw
from tests.memory_kube import MemoryApiServer, MemoryKube


class LoopClock:
    """The loop's own time, which the `looptime` marker makes virtual."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Highest(random.Random):
    """Draws the highest number: waits are as long as they may be."""

    def uniform(self, a: float, b: float) -> float:
        return b


class Asked(NamedTuple):
    """One request: when, what (`list`, `watch` or a path), and its parameters."""

    at: float
    what: str
    params: Mapping[str, str]


Script = Sequence[Raw | Exception | float]
"""What a watch does: send an event, fail, or be silent for so many seconds; then it ends."""

FOREVER: Script = (1e9,)


def obj(name: str, version: int = 1, namespace: str = "ns1", **more: Any) -> Raw:
    """An object."""
    return {
        "metadata": {"namespace": namespace, "name": name, "resourceVersion": str(version)},
        **more,
    }


def page(*items: Raw, version: int = 10, token: str = "") -> bytes:
    """One page of a list."""
    metadata = {"resourceVersion": str(version), "continue": token}
    return json.dumps({"kind": "XList", "metadata": metadata, "items": items}).encode()


def event(kind: str, raw: Raw) -> Raw:
    """One event of a watch."""
    return {"type": kind, "object": raw}


class ScriptedKube(MemoryKube):
    """Answers lists and watches from two scripts, in order; the last entry is repeated.

    Attributes:
        discovered: what discovery answers, an exception to raise.
        timeouts: the read timeout of each watch.
    """

    def __init__(
        self, lists: Sequence[bytes | Exception], watches: Sequence[Script] = (FOREVER,)
    ) -> None:
        super().__init__(MemoryApiServer())
        self.asked: list[Asked] = []
        self.timeouts: list[float] = []
        self.discovered: Raw | Exception = {"resources": []}
        self._lists = list(lists)
        self._watches = list(watches)
        self._began = asyncio.get_running_loop().time()

    def times(self, what: str) -> list[float]:
        """When such requests came, in seconds since the beginning."""
        return [round(each.at, 3) for each in self.asked if each.what == what]

    def versions(self) -> list[str]:
        """Where each watch began."""
        return [each.params["resourceVersion"] for each in self.asked if each.what == "watch"]

    def _note(self, what: str, params: Mapping[str, str] | None) -> None:
        now = asyncio.get_running_loop().time() - self._began
        self.asked.append(Asked(now, what, dict(params or {})))

    async def get(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> Raw:
        self._note(path, params)
        if isinstance(self.discovered, Exception):
            raise self.discovered
        return self.discovered

    async def read(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
    ) -> bytes:
        self._note("list", params)
        answer = self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(
        self, path: str, *, params: Mapping[str, str], read_timeout_seconds: float
    ) -> AsyncGenerator[Raw, None]:
        self._note("watch", params)
        self.timeouts.append(read_timeout_seconds)
        for step in self._watches.pop(0) if len(self._watches) > 1 else self._watches[0]:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

"""What a gateway's control plane sees: the fleet's EndpointSlices, as a watch tells them."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from coordinator.routes.slice_format import collection, decode, selector
from fleet.kube.contract import KubeApi, Raw
from fleet.model import GroupKey

_WATCH_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Seen:
    """The latest state of one group's slice.

    Attributes:
        at: monotonic seconds at which we were told.
    """

    addresses: tuple[str, ...]
    at: float


class Slices:
    """Of all groups.

    Attributes:
        arrivals: the groups in the order in which they had an address first.
    """

    def __init__(self, api: KubeApi, fleet: str) -> None:
        self.seen: dict[GroupKey, Seen] = {}
        self.arrivals: asyncio.Queue[GroupKey] = asyncio.Queue()
        self._arrived: set[GroupKey] = set()
        self._api = api
        self._fleet = fleet
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Return once the condition holds.

        Raises:
            AssertionError: not in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"not within {seconds:g} s: {what}") from None

    async def address(self, group: GroupKey, seconds: float) -> str:
        """The first address of the group's slice, once it has one.

        Raises:
            AssertionError: not in time.
        """
        await self.until(
            lambda: group in self.seen and bool(self.seen[group].addresses), str(group), seconds
        )
        return self.seen[group].addresses[0]

    def named(self) -> dict[str, int]:
        """How many slices name each address."""
        found: dict[str, int] = {}
        for seen in self.seen.values():
            for address in seen.addresses:
                found[address] = found.get(address, 0) + 1
        return found

    async def follow(self) -> None:
        """Until cancelled."""
        params = {
            "watch": "true",
            "labelSelector": selector(self._fleet),
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        while True:
            async for event in self._api.watch(
                collection(""), params=params, read_timeout_seconds=_WATCH_SECONDS + 10.0
            ):
                self._note(event["type"], event["object"])

    def _note(self, kind: str, raw: Raw) -> None:
        found = decode(raw, self._fleet)
        if found is None:
            return
        if kind == "DELETED":
            self.seen.pop(found.group, None)
        elif found.group not in self.seen or self.seen[found.group].addresses != found.addresses:
            self.seen[found.group] = Seen(found.addresses, time.monotonic())
            if found.addresses and found.group not in self._arrived:
                self._arrived.add(found.group)
                self.arrivals.put_nowait(found.group)
        self._changed.set()


@contextlib.asynccontextmanager
async def followed(api: KubeApi, fleet: str) -> AsyncIterator[Slices]:
    """Slices that are kept up to date."""
    slices = Slices(api, fleet)
    task = asyncio.create_task(slices.follow())
    try:
        yield slices
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

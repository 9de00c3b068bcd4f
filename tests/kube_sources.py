"""A running `KubeSource` for tests, over whatever API server a kubeconfig names."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fleet.clock import SystemClock
from fleet.kube.client import KubeClient, open_client
from fleet.kube.listwatch_condition import Condition
from fleet.kube.listwatch_pace import Pace
from fleet.settings.model import KubernetesSettings
from fleet.sources.kubernetes import KubeSource

QUICK = Pace(
    page_seconds=5.0,
    first_wait_seconds=0.01,
    longest_wait_seconds=0.05,
    first_missing_seconds=0.02,
    longest_missing_seconds=0.05,
    short_seconds=0.2,
)
"""Failures are over in hundredths of a second."""


class ShiftedClock(SystemClock):
    """The machine's clock, plus what a test lets pass at once."""

    def __init__(self) -> None:
        self.shift = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.shift


async def until(condition: Callable[[], bool], what: str = "", *, seconds: float = 20) -> None:
    """Return once the condition holds; it is looked at every few turns of the loop."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


class RunningSource:
    """A `KubeSource`, its client and its clock."""

    def __init__(self, source: KubeSource, client: KubeClient, clock: ShiftedClock) -> None:
        self.source = source
        self.client = client
        self.clock = clock

    def condition(self, ending: str) -> Condition:
        """How the one list+watch is doing whose path ends so."""
        (found,) = [each for each in self.source.conditions() if each.path.endswith(ending)]
        return found

    async def watching(self) -> None:
        """Return once every list+watch has its list and is well."""
        await until(
            lambda: all(each.synced and not each.failing for each in self.source.conditions()),
            "all lists are here",
        )


@asynccontextmanager
async def running_source(
    kubeconfig: Path,
    *,
    pace: Pace = QUICK,
    watch_namespaces: str = "",
    request_timeout_seconds: float = 5.0,
) -> AsyncIterator[RunningSource]:
    """A source (not started) until the context ends."""
    settings = KubernetesSettings(
        kubeconfig=str(kubeconfig),
        watch_namespaces=watch_namespaces,
        request_timeout_seconds=request_timeout_seconds,
    )
    clock = ShiftedClock()
    client = await open_client(settings)
    source = KubeSource(client, settings, clock, random.Random(1), pace=pace)
    try:
        yield RunningSource(source, client, clock)
    finally:
        await source.close()
        await client.close()

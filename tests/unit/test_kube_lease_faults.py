"""Three candidates of one Lease under random faults, in virtual time; a seed replays its run."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

import pytest

from tests.contract.election_worlds import SETTINGS, Coordinator, KubeHome
from tests.fake_api_store import LEASES, Refusal
from tests.memory_kube import NAMESPACE, MemoryApiServer, MemoryKube

SECONDS = 30.0
LOOK_SECONDS = 0.04
CALM = (0.0, 0.002), (0.0, 0.002)

pytestmark = pytest.mark.looptime


class Trial:
    """Candidates, their faults, and what was seen of their terms.

    Attributes:
        terms: epoch and holder of every term, in the order in which they were seen.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.server = MemoryApiServer()
        self.clients = [MemoryKube(self.server) for _ in range(3)]
        for client in self.clients:
            self.slow(client, CALM)
        trace: list[str] = []
        self.fleet = [Coordinator(f"c{n}", KubeHome(c), trace) for n, c in enumerate(self.clients)]
        self.terms: list[tuple[int, str]] = []
        self.faults: set[asyncio.Task[None]] = set()

    def slow(
        self, client: MemoryKube, latency: tuple[tuple[float, float], tuple[float, float]]
    ) -> None:
        there, back = latency
        client.latency = lambda: (self.rng.uniform(*there), self.rng.uniform(*back))

    def look(self) -> None:
        """Never two at once, and no epoch twice or downwards."""
        leading = [c for c in self.fleet if c.leads()]
        assert len(leading) <= 1, "two leaders"
        for one in leading:
            seen = (one.epoch, one.info.id)
            if not self.terms or seen != self.terms[-1]:
                assert not self.terms or one.epoch > self.terms[-1][0], self.terms
                self.terms.append(seen)

    async def fault(self) -> None:
        """One fault, and its end."""
        leading = [n for n, one in enumerate(self.fleet) if one.leads()]
        chosen = leading if leading and self.rng.random() < 0.7 else range(3)
        client = self.clients[self.rng.choice(chosen)]
        seconds = self.rng.uniform(0.05, 1.5 * SETTINGS.lease_ttl_seconds)
        match self.rng.randrange(7):
            case 0:
                client.cut = True
                await asyncio.sleep(seconds)
                client.cut = False
            case 1:
                self.server.available = False
                await asyncio.sleep(seconds)
                self.server.available = True
            case 2:
                self.server.end_watches()
            case 3:
                self.server.losing += self.rng.randint(1, 3)
            case 4:
                self.server.dropping += self.rng.randint(1, 3)
            case 5:
                slow = self.rng.uniform(0.1, 2.0)
                self.slow(client, ((0.0, slow), (0.0, slow)))
                await asyncio.sleep(seconds)
                self.slow(client, CALM)
            case _:
                body = {"metadata": {"annotations": {"note": str(self.rng.random())}}}
                with contextlib.suppress(Refusal):
                    self.server.store.patch(LEASES, NAMESPACE, "epp-fleet-blue", body)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        end, due = loop.time() + SECONDS, loop.time()
        while loop.time() < end:
            if loop.time() >= due:
                due += self.rng.uniform(0.1, 1.2)
                self.faults.add(asyncio.create_task(self.fault()))
            self.look()
            await asyncio.sleep(LOOK_SECONDS)
        await asyncio.gather(*self.faults)
        self.server.losing = self.server.dropping = 0

    async def close(self) -> None:
        for coordinator in self.fleet:
            await coordinator.stop()
        for client in self.clients:
            await client.close()


@pytest.fixture
async def trial(request: pytest.FixtureRequest) -> AsyncIterator[Trial]:
    trial = Trial(request.param)
    yield trial
    await trial.close()


@pytest.mark.parametrize("trial", range(10), indirect=True)
async def test_there_are_never_two_leaders_and_epochs_only_grow(trial: Trial) -> None:
    """Cut off, slow, unanswered, landed late, written to by others: and when all is well again,
    somebody leads within the TTL and a little.
    """
    await trial.run()
    loop = asyncio.get_running_loop()
    end = loop.time() + 1.5 * SETTINGS.lease_ttl_seconds
    while not any(c.leads() for c in trial.fleet):
        assert loop.time() < end, "nobody leads"
        await asyncio.sleep(LOOK_SECONDS)
        trial.look()
    assert len(trial.terms) > 1, "a run without a change of terms tried nothing"

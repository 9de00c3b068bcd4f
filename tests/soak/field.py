"""The fleet that faults are done to: real processes on loopback around a real Valkey, pools of one
pod each, two coordinators, three workers, and traffic through a real Envoy.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fleet.local.demo_events import Outcome, Record
from fleet.model import Endpoint, GroupKey, Pool, PoolRef
from tests.bench.rows import Row
from tests.fleet_processes import TOKEN, Child, Fleet, pod_address, running_fleet, until
from tests.soak import hole
from tests.soak.estate import say
from tests.soak.gateway import Gateway, gateway
from tests.soak.load import Result, Spec, Target
from tests.soak.model_servers import PORT, model_servers_process
from tests.valkey import Valkey

POOLS = 12
WORKERS = 3
COORDINATORS = 2
SETTLE_SECONDS = 30.0
END_SECONDS = 40.0
WARM_SECONDS = 3.0
COMMAND_SECONDS = 10.0


@dataclass(slots=True)
class Counts:
    """What clients saw; filled when the traffic has ended.

    Attributes:
        late_seconds: the most that a request was sent later than it was due.
    """

    records: list[Record]
    skipped: int = 0
    late_seconds: float = 0.0

    def rows(self, name: str, *, lossless: bool, least: int = 1) -> list[Row]:
        """Requests, of which there must have been so many, failed and cut."""
        target = 0.0 if lossless else None
        failed = sum(record.outcome is Outcome.FAILED for record in self.records)
        cut = sum(record.outcome is Outcome.CUT for record in self.records)
        return [
            Row(f"{name}: requests", len(self.records), "requests", least, at_least=True),
            Row(f"{name}: failed", failed, "requests", target),
            Row(f"{name}: cut", cut, "requests", target),
        ]

    def tell(self, name: str) -> None:
        """What people should know of bad ones, and whether the load was what it should be."""
        reasons: dict[str, int] = {}
        for record in self.records:
            if record.why:
                reasons[record.why] = reasons.get(record.why, 0) + 1
        say(f"{name}: {len(self.records)} requests, bad: {reasons}")
        say(f"{name}: {self.skipped} skipped, sent at most {self.late_seconds * 1e3:.0f} ms late")


class Field:
    """All that a scenario may touch.

    Attributes:
        addressed: whether each worker has addresses of its own (see `tests.soak.hole`).
        workers: those that are in use, by name.
    """

    def __init__(self, fleet: Fleet, pools: int, *, addressed: bool = False) -> None:
        self.fleet = fleet
        self.pools = {
            GroupKey("ns1", f"pool-{n}-epp", 9002): Pool(
                PoolRef("ns1", f"pool-{n}"),
                "",
                {"app": f"pool-{n}"},
                (PORT,),
                GroupKey("ns1", f"pool-{n}-epp", 9002),
            )
            for n in range(pools)
        }
        self.coordinators: dict[str, Child] = {}
        self.workers: dict[str, Child] = {}
        self.addressed = addressed
        self._frozen: list[Child] = []
        self._hosts: dict[int, str] = {}
        self._reached: dict[str, tuple[str, str]] = {}
        self._made = 0

    @property
    def endpoints(self) -> list[Endpoint]:
        """The pods, in the pools' order."""
        return [
            Endpoint(f"ns1/pod-{n}", "", f"{pod_address(n)}:{PORT}", 0)
            for n in range(len(self.pools))
        ]

    # -- processes ------------------------------------------------------------------------------

    def add_worker(self) -> str:
        """Start one more; its name."""
        name = f"worker-{self._made}"
        self._made += 1
        if not self.addressed:
            self.workers[name] = self.fleet.worker(name)
            return name
        own, store = hole.addresses_of(self._made)
        url = self.fleet.valkey.url.replace("127.0.0.1", store)
        environment = {"EPP_FLEET_REDIS__URL": url}
        self.workers[name] = self.fleet.worker(name, host=own, environment=environment)
        self._hosts[self.workers[name].ports["ext-proc"]] = own
        self._reached[name] = (own, store)
        return name

    def add_coordinator(self) -> str:
        """Start one more; its name."""
        name = f"coordinator-{self._made}"
        self._made += 1
        self.coordinators[name] = self.fleet.coordinator(name)
        return name

    def discard(self, worker: str) -> None:
        """Take one that is dead or as good as dead out of use."""
        self.workers.pop(worker).kill()

    def discard_coordinator(self, name: str) -> None:
        """Kill one."""
        self.coordinators.pop(name).kill()

    def freeze(self, worker: str) -> None:
        """Stop one (SIGSTOP); it is out of use, and killed with the next that are replaced."""
        child = self.workers.pop(worker)
        child.signal(signal.SIGSTOP)
        self._frozen.append(child)

    def cut_off(self, worker: str) -> None:
        """Let nothing reach one from now on, nor it the store; it is replaced like a frozen one."""
        for address in self._reached[worker]:
            hole.swallow(address)
        self._frozen.append(self.workers.pop(worker))

    def replace_lost(self) -> None:
        """Start as many as are missing."""
        while self._frozen:
            self._frozen.pop().kill()
        while len(self.workers) < WORKERS:
            self.add_worker()
        while len(self.coordinators) < COORDINATORS:
            self.add_coordinator()

    def leader(self) -> str:
        """Who leads, as any coordinator knows; empty if none does."""
        for child in self.coordinators.values():
            shown = self.fleet.map(child)
            if shown is not None and shown["leader"] is not None:
                return str(shown["leader"]["id"])
        return ""

    def command(self, worker: str, verb: str) -> None:
        """Have the leader drain or undrain a worker; again if it says that it cannot just now."""
        end = time.monotonic() + COMMAND_SECONDS
        while True:
            try:
                return self._command(worker, verb)
            except (urllib.error.URLError, KeyError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def _command(self, worker: str, verb: str) -> None:
        url = f"http://127.0.0.1:{self.coordinators[self.leader()].ports['http']}"
        request = urllib.request.Request(
            f"{url}/api/v1/workers/{worker}/{verb}",
            method="POST",
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 202, answer.status

    # -- what the map says ----------------------------------------------------------------------

    def owned(self) -> dict[str, int]:
        """How many pools each worker owns; empty unless all are owned and at rest."""
        found: dict[str, int] = {}
        for child in self.coordinators.values():
            shown = self.fleet.map(child)
            if shown is None or len(shown["pools"]) != len(self.pools):
                continue
            if any(p["phase"] != "owned" or len(p["owners"]) != 1 for p in shown["pools"]):
                return {}
            for pool in shown["pools"]:
                found[pool["owners"][0]] = found.get(pool["owners"][0], 0) + 1
            return found
        return {}

    def busiest(self) -> str:
        """The worker that owns most."""
        owned = self.owned()
        return max(sorted(owned), key=lambda name: owned[name])

    def routes(self) -> dict[GroupKey, str]:
        """The one address of each group that has one."""
        found = {}
        for name, (_, ports) in self.fleet.routes().items():
            namespace, service, port = name.removesuffix(".json").split("~")
            if len(ports) == 1:
                found[GroupKey(namespace, service, int(port))] = (
                    f"{self._hosts.get(ports[0], '127.0.0.1')}:{ports[0]}"
                )
        return found

    async def until(self, what: str, condition: Callable[[], bool]) -> float:
        """Seconds that it took.

        Raises:
            AssertionError: not in time.
        """
        return await asyncio.to_thread(until, what, condition, SETTLE_SECONDS)

    async def until_shared(self) -> None:
        """Until all pools are owned, by all workers that are in use and by no other."""
        await self.until("all share", lambda: self.owned().keys() == self.workers.keys())

    async def until_free(self, worker: str) -> None:
        """Until it owns nothing any more, and everything is owned."""
        await self.until(
            f"{worker} owns nothing", lambda: bool(owned := self.owned()) and worker not in owned
        )

    # -- traffic --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def load(self, address: str, per_second: float) -> AsyncIterator[Counts]:
        """Steady requests to all pools for the length of the block."""
        pods = [each.address.rpartition(":")[0] for each in self.endpoints]
        targets = tuple(
            Target(f"/{pool.ref}/v1/chat/completions", f"model-of-{pool.ref.name}", pod)
            for pool, pod in zip(self.pools.values(), pods, strict=True)
        )
        folder = Path(tempfile.mkdtemp(dir=self.fleet.folder))
        spec, out = folder / "spec.json", folder / "out.json"
        spec.write_bytes(msgspec.json.encode(Spec(address, per_second, targets)))
        command = [sys.executable, "-m", "tests.soak.load", str(spec), str(out)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        counts = Counts([])
        try:
            await asyncio.sleep(WARM_SECONDS)
            yield counts
            process.stdin.close()
            await asyncio.to_thread(process.wait, END_SECONDS)
            result = msgspec.json.decode(out.read_bytes(), type=Result)
            counts.records += [
                Record(a, b, Outcome(what), why) for a, b, what, why in result.records
            ]
            counts.skipped, counts.late_seconds = result.skipped, result.late_seconds
        finally:
            process.kill()
            process.wait(10)
            process.stdin.close()


@contextlib.asynccontextmanager
async def field(
    *, pools: int = POOLS, workers: int = WORKERS, addressed: bool = False
) -> AsyncIterator[tuple[Field, Gateway]]:
    """A fleet that serves, behind its gateway."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="epp-fleet-soak-")))
        stack.enter_context(model_servers_process())
        valkey = Valkey(arguments=hole.VALKEY) if addressed else None
        fleet = stack.enter_context(running_fleet(folder, valkey))
        fleet.prepare(pools)
        made = Field(fleet, pools, addressed=addressed)
        for _ in range(COORDINATORS):
            made.add_coordinator()
        for _ in range(workers):
            made.add_worker()
        await made.until_shared()
        await made.until("routes", lambda: len(made.routes()) == pools)
        before = folder / "envoy"
        before.mkdir()
        yield (
            made,
            await stack.enter_async_context(
                gateway(before, made.pools, made.endpoints, fleet.eds, made.routes)
            ),
        )


def machine() -> str:
    """How busy the machine is, for the figures' sake."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"

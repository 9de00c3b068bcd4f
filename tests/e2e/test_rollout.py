"""A roll-out as a cluster does it, through real Envoy under steady traffic: nothing is lost.

New worker in, old worker SIGTERMed, one after the other; the same for coordinators, the leader
included (kubernetes-sigs/gateway-api-inference-extension#548, llm-d/llm-d-router#1885).
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fleet.clock import SystemClock
from fleet.local.ports import Ports
from fleet.local.sample import POOLS
from fleet.local.traffic import Target, Traffic
from tests.e2e.local_process import LocalProcess, local_process, wait_for

pytestmark = pytest.mark.timeout(240)

QUICK = {"worker": {"quiet_seconds": 2.0, "propagation_seconds": 0.3}}
PER_SECOND = 60.0


@contextmanager
def process(run: LocalProcess, folder: Path, module: str, name: str, **ports: int) -> Iterator[int]:
    """A further process of the fleet; yields its pid."""
    flags = [f"--{port.replace('_', '-')}-port={number}" for port, number in ports.items()]
    command = [sys.executable, "-m", module, "--id", name, "--host", "127.0.0.1", *flags]
    command += ["--config", str(folder / "settings.yaml")]
    with (folder / f"{name}.log").open("wb") as log:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=run.environ
        )
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait(10)


class Rolling:
    """What the steps of a roll-out need of a local fleet."""

    def __init__(self, run: LocalProcess, ports: Ports, stack: ExitStack) -> None:
        self.run = run
        self.state = run.wait_ready()
        self.folder = Path(self.state["folder"])
        self.ports = ports
        self._stack = stack
        self.coordinators = [each["http"] for each in self.state["coordinators"]]

    def start(self, module: str, name: str, *ports: str) -> dict[str, int]:
        """Start a further process; its ports."""
        chosen = {port: self.ports.take() for port in ports}
        self._stack.enter_context(process(self.run, self.folder, module, name, **chosen))
        return chosen

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait in a thread, so that the traffic goes on."""
        await asyncio.to_thread(wait_for, condition, 60.0, what)


def _targets(gateway: str) -> list[Target]:
    return [
        Target(
            f"http://{gateway}/{pool.namespace}/{pool.name}/v1/chat/completions",
            pool.model,
            f"{pool.namespace}/{pool.name}-",
        )
        for pool in POOLS
    ]


def _gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return text.rpartition(")")[2].split()[0] == "Z"


async def _leave(rolling: Rolling, old: dict[str, Any]) -> None:
    os.kill(old["pid"], signal.SIGTERM)
    await rolling.until(lambda: _gone(old["pid"]), f"{old['id']} has left")


async def _roll_workers(rolling: Rolling) -> None:
    for number, old in enumerate(rolling.state["workers"][:2]):
        await _join_worker(rolling, f"worker-{3 + number}")
        await _leave(rolling, old)


async def _join_worker(rolling: Rolling, name: str) -> None:
    rolling.start("epp_worker", name, "ext_proc", "health", "internal", "http")

    def joined() -> bool:
        workers = _document(rolling.coordinators, "/api/v1/workers").get("workers", [])
        return any(each["id"] == name and each["state"] == "alive" for each in workers)

    await rolling.until(joined, f"{name} is a member")


async def _roll_coordinators(rolling: Rolling) -> None:
    leader = _leader(rolling.coordinators)
    ordered = sorted(rolling.state["coordinators"], key=lambda each: bool(each["id"] == leader))
    for number, old in enumerate(ordered[1:]):
        await _join_coordinator(rolling, f"coordinator-{3 + number}")
        await _leave(rolling, old)
    await rolling.until(
        lambda: _leader(rolling.coordinators) not in (None, leader), "another one leads"
    )


async def _join_coordinator(rolling: Rolling, name: str) -> None:
    ports = rolling.start("coordinator", name, "http", "internal")
    address = f"127.0.0.1:{ports['http']}"
    rolling.coordinators.append(address)
    await rolling.until(lambda: _leader([address]) is not None, f"{name} follows")


def _leader(coordinators: list[str]) -> str | None:
    shown = _document(coordinators, "/api/v1/map").get("leader")
    return None if shown is None else str(shown["id"])


def _document(coordinators: list[str], path: str) -> dict[str, Any]:
    """What the first of them that answers says, the newest asked first."""
    for http in reversed(coordinators):
        try:
            with urllib.request.urlopen(f"http://{http}{path}", timeout=2) as answer:
                return dict(json.load(answer))
        except OSError:
            continue
    return {}


async def _under_traffic(
    rolling: Rolling, work: Callable[[Rolling], Awaitable[None]]
) -> tuple[int, int, int, Counter[str]]:
    async with aiohttp.ClientSession() as http:
        targets = _targets(rolling.state["gateway"])
        traffic = Traffic(http, targets, SystemClock(), random.Random(7))
        running = asyncio.create_task(traffic.run(PER_SECOND))
        try:
            await work(rolling)
        finally:
            traffic.stop()
            await running
        reasons = Counter(record.why for record in traffic.records if record.why)
        return (*traffic.counts(), reasons)


@pytest.mark.parametrize("work", [_roll_workers, _roll_coordinators], ids=lambda f: f.__name__[6:])
async def test_a_roll_out_loses_nothing(
    tmp_path: Path, work: Callable[[Rolling], Awaitable[None]]
) -> None:
    """No request fails, no answer is cut, and every pool keeps an owner."""
    config = tmp_path / "quick.yaml"
    config.write_text(json.dumps(QUICK))
    with (
        local_process(tmp_path / "home", "--config", str(config)) as run,
        Ports(random.SystemRandom()) as ports,
        ExitStack() as stack,
    ):
        rolling = await asyncio.to_thread(Rolling, run, ports, stack)
        requests, failed, cut, reasons = await _under_traffic(rolling, work)
        assert (failed, cut) == (0, 0), f"of {requests}: {reasons}"
        assert requests > PER_SECOND
        pools = _document(rolling.coordinators, "/api/v1/map")["pools"]
        assert [pool for pool in pools if not pool["owners"]] == []

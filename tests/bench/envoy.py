"""A worker behind a real Envoy: requests per second, and whose CPU each takes.

The same Envoy has two listeners: one asks the picker about each request, with the bodies of both
directions in FULL_DUPLEX_STREAMED, the other does not. A second Envoy plays all the pods. Both, and
the load, share a core; the worker has the other one for itself.
"""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.load import Outcome, Plan
from tests.bench.rows import Row, StreamsRow
from tests.bench.script import AUTHORITY, POD_BODY, address
from tests.bench.served import LOAD_CORE, Options, Served
from tests.bench.streams import OPEN_RATE, RUNS, Runs, load
from tests.envoy import Envoy, http_listener
from tests.ext_proc_gateway import endpoint, resources

_PLAN = Plan(0, "http", core=LOAD_CORE)


def _pods() -> dict[str, Any]:
    """Every pod at once: one listener on all addresses that answers by itself."""
    answer = {"status": 200, "body": {"inline_string": POD_BODY.decode()}}
    everything = {"match": {"prefix": "/"}, "direct_response": answer}
    listener = http_listener("pods", routes=(everything,))
    listener["address"]["socket_address"]["address"] = "0.0.0.0"
    return {"listeners": [listener]}


def _gateway(picker: int, pod_port: int) -> dict[str, Any]:
    """Two listeners: with the picker and without."""
    made = resources(f"127.0.0.1:{picker}", AUTHORITY)
    made["listeners"].append(http_listener("straight", "straight"))
    lb_endpoints = [endpoint(f"{address(0)}:{pod_port}")]
    assignment = {"cluster_name": "straight", "endpoints": [{"lb_endpoints": lb_endpoints}]}
    made["clusters"].append({"name": "straight", "type": "STATIC", "load_assignment": assignment})
    return made


class _Scene:
    """Two Envoys around a worker."""

    def __init__(self, gateway: Envoy, ports: dict[str, int], worker: int) -> None:
        self.ports = ports
        self._pids = (worker, gateway.pid)

    def load(self, listener: str, **changes: Any) -> Outcome:
        """One run."""
        return load(replace(_PLAN, port=self.ports[listener], pids=self._pids, **changes))


async def _measure(options: Options) -> dict[str, Runs]:
    """Runs by name: through the picker and straight on, as much as goes and at a given rate."""
    found: dict[str, list[Outcome]] = {}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        for part in ("pods", "gateway"):
            folder.joinpath(part).mkdir()
        async with Envoy(folder / "pods", _pods()) as pods:
            pod_port = int((await pods.listener("pods")).rpartition(":")[2])
            server = stack.enter_context(Served("worker", replace(options, pod_port=pod_port)))
            made = _gateway(server.port, pod_port)
            async with Envoy(folder / "gateway", made) as gateway:
                for each in (pods, gateway):
                    os.sched_setaffinity(each.pid, {LOAD_CORE})
                    for task in Path(f"/proc/{each.pid}/task").iterdir():
                        os.sched_setaffinity(int(task.name), {LOAD_CORE})
                ports = {
                    listener: int((await gateway.listener(listener)).rpartition(":")[2])
                    for listener in ("gateway", "straight")
                }
                scene = _Scene(gateway, ports, server.pid)
                for _ in range(RUNS):
                    for listener in ports:
                        most = await asyncio.to_thread(scene.load, listener)
                        found.setdefault(f"{listener} most", []).append(most)
                        rate = await asyncio.to_thread(
                            scene.load, listener, rate=OPEN_RATE, seconds=2.0
                        )
                        found.setdefault(f"{listener} rate", []).append(rate)
    return {name: Runs(outcomes) for name, outcomes in found.items()}


def rows() -> Iterator[Row | StreamsRow]:
    """The room."""
    for name, options, most in (
        ("default scorers", Options(), 0.55),
        ("anybody", Options(anybody=True), 0.35),
    ):
        runs = asyncio.run(_measure(options))
        for kind, label in (("most", "64 in flight"), ("rate", "500/s")):
            ours, straight = runs[f"gateway {kind}"], runs[f"straight {kind}"]
            for each, what in ((ours, f"Envoy, {name}"), (straight, "Envoy without ext_proc")):
                also = {"Envoy us": each.cpu_us[1]}
                if each.failed:
                    also["failed"] = each.failed
                yield StreamsRow(
                    f"{what}, {label}",
                    each.rate,
                    each.cpu_us[0] if each is ours else 0.0,
                    each.p50,
                    each.p99,
                    limit="the given rate" if kind == "rate" else "the core of Envoy and the load",
                    also=also,
                )
        saturated = runs["gateway most"]
        ratio = saturated.cpu_us[0] / saturated.cpu_us[1]
        yield Row(f"Envoy, {name}: worker's CPU of Envoy's", ratio, "", most)
        ours, straight = runs["gateway rate"], runs["straight rate"]
        yield Row(f"Envoy, {name}: adds at 500/s, p50", ours.p50 - straight.p50, "ms", 1.0)
        yield Row(f"Envoy, {name}: adds at 500/s, p99", ours.p99 - straight.p99, "ms", 4.0)

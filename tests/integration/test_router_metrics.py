"""The llm-d router's metrics on a worker's page, after scripted requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from epp_worker.scheduling.pool import PoolState
from fleet.model import Hold
from fleet.settings import WorkerSettings
from tests import manifest_texts
from tests.unit import extproc_messages as make
from tests.worker_inprocess import (
    DEADLINE,
    Gateway,
    Running,
    TestLeader,
    group_of,
    running_worker,
    until,
    write_pool,
)

M = {"model_name", "target_model_name", "fairness_id", "priority"}
NAME = {"name"}
HERE = {"namespace", "pool"}
"""What a process with many pools has to add."""

GOLDEN: Mapping[str, tuple[str, set[str]]] = {
    "request_total": ("counter", M),
    "request_error_total": ("counter", M | {"error_code"}),
    "request_duration_seconds": ("histogram", M),
    "request_size_bytes": ("histogram", M),
    "response_size_bytes": ("histogram", M),
    "request_input_tokens": ("histogram", M),
    "request_output_tokens": ("histogram", M),
    "request_cached_tokens": ("histogram", M),
    "request_ntpot_seconds": ("histogram", M),
    "request_streaming_tpot_seconds": ("histogram", M),
    "request_ttft_seconds": ("histogram", M | {"streaming"}),
    "request_running": ("gauge", M),
    "average_kv_cache_utilization": ("gauge", NAME),
    "average_queue_size": ("gauge", NAME),
    "average_running_requests": ("gauge", NAME),
    "std_dev_kv_cache_utilization": ("gauge", NAME),
    "std_dev_queue_size": ("gauge", NAME),
    "std_dev_running_requests": ("gauge", NAME),
    "ready_endpoints": ("gauge", NAME),
    "per_endpoint_queue_size": ("gauge", NAME | {"model_server_endpoint"}),
    "scheduler_e2e_duration_seconds": ("histogram", set()),
    "scheduler_attempts_total": (
        "counter",
        {"status", "target_model_name", "endpoint_name", "namespace", "port"},
    ),
    "model_rewrite_decisions_total": (
        "counter",
        {"model_rewrite_name", "model_name", "target_model"},
    ),
    "inflight_requests": ("gauge", {"endpoint_name", "namespace", "producer_name"}),
}
"""Name, kind and labels as the router has them, without `llm_d_epp_`."""

OF_THE_WORKER: Mapping[str, tuple[str, set[str]]] = {
    "info": ("gauge", {"commit", "build_ref"}),
    "datalayer_poll_errors_total": ("counter", {"source_type"}),
}
OTHERS = {"prefix_indexer_size", "prefix_indexer_hit_ratio", "prefix_indexer_hit_bytes"}

TWINS = {
    "inference_objective_request_total": "request_total",
    "inference_objective_request_duration_seconds": "request_duration_seconds",
    "inference_objective_request_sizes": "request_size_bytes",
    "inference_objective_response_sizes": "response_size_bytes",
    "inference_objective_input_tokens": "request_input_tokens",
    "inference_objective_output_tokens": "request_output_tokens",
    "inference_objective_running_requests": "request_running",
    "inference_pool_ready_pods": "ready_endpoints",
    "inference_pool_average_kv_cache_utilization": "average_kv_cache_utilization",
    "inference_pool_average_queue_size": "average_queue_size",
    "inference_extension_scheduler_e2e_duration_seconds": "scheduler_e2e_duration_seconds",
    "inference_extension_scheduler_attempts_total": "scheduler_attempts_total",
    "inference_extension_info": "info",
}

STREAM = {":status": "200", "content-type": "text/event-stream"}
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "prompt_tokens_details": {"cached_tokens": 64},
}


class Page:
    """A metrics page, read."""

    def __init__(self, text: str) -> None:
        self.kinds: dict[str, str] = {}
        self.labels: dict[str, set[str]] = {}
        self._samples: list[tuple[str, dict[str, str], float]] = []
        for family in text_string_to_metric_families(text):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            self.kinds[name] = family.type
            for sample in family.samples:
                self.labels.setdefault(name, set()).update(sample.labels.keys() - {"le"})
                self._samples.append((sample.name, sample.labels, sample.value))

    def value(self, name: str, /, **labels: str) -> float | None:
        """The sum of the samples that have these labels; None = there is none."""
        found = [
            value
            for sample, own, value in self._samples
            if sample == f"llm_d_epp_{name}" and labels.items() <= own.items()
        ]
        return sum(found) if found else None

    def pools(self) -> set[str]:
        """Pools that any of the router's metrics names."""
        return {
            own["pool"]
            for name, own, _ in self._samples
            if name.startswith("llm_d_epp_") and "pool" in own
        }


async def page_of(running: Running) -> Page:
    """The page as Prometheus reads it."""
    url = f"http://{running.worker.addresses.http}/metrics"
    async with aiohttp.ClientSession() as client, client.get(url) as answer:
        return Page(await answer.text())


class Exchange:
    """One stream of a gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._call: Any = gateway.stream()

    async def say(self, *messages: bytes, answers: int = 1) -> None:
        """Send messages, and wait for as many answers."""
        for message in messages:
            await self._call.write(message)
        async with asyncio.timeout(DEADLINE):
            for _ in range(answers):
                assert isinstance(await self._call.read(), bytes)

    async def ask(self, model: str, headers: Mapping[str, str] | None = None) -> None:
        """A request until its pick."""
        given = {":method": "POST", ":path": "/v1/chat/completions", **(headers or {})}
        body = json.dumps({"model": model, "messages": []}).encode()
        parts = (make.request_headers(given), make.request_body(body, end_of_stream=True))
        await self.say(*parts, answers=2)

    async def end(self) -> None:
        """The gateway is done with the stream."""
        await self._call.done_writing()
        async with asyncio.timeout(DEADLINE):
            while isinstance(await self._call.read(), bytes):
                continue

    def cut(self) -> None:
        """The gateway resets the stream."""
        self._call.cancel()


@asynccontextmanager
async def serving(folder: Path, *, twins: bool = False) -> AsyncIterator[tuple[Running, Gateway]]:
    """A worker that owns pool-a, with two pods, and pool-b; pool-a's gateway."""
    pool = manifest_texts.pool("pool-a")
    pods = [
        manifest_texts.pod(f"a-{n}", labels={"app": "pool-a"}, ip=f"10.0.0.{n}") for n in (1, 2)
    ]
    rewrite = {
        "apiVersion": "llm-d.ai/v1alpha2",
        "kind": "InferenceModelRewrite",
        "metadata": {"name": "newest", "namespace": "ns1"},
        "spec": {
            "poolRef": {"name": "pool-a"},
            "rules": [
                {
                    "matches": [{"model": {"value": "chat"}}],
                    "targets": [{"modelRewrite": "chat-v2", "weight": 1}],
                }
            ],
        },
    }
    (folder / "pool-a.yaml").write_text(manifest_texts.text(pool, *pods, rewrite))
    write_pool(folder, "pool-b", "10.0.0.9")
    settings = WorkerSettings(
        host="127.0.0.1",
        ext_proc_port=0,
        health_port=0,
        internal_port=0,
        http_port=0,
        legacy_metrics=twins,
    )
    async with running_worker(folder, worker_settings=settings) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, pool_a=Hold.OWNER, pool_b=Hold.OWNER))
        gateway = Gateway(running.worker.addresses.ext_proc, "pool-a-epp.ns1:9002")
        yield running, gateway
        await gateway.close()
        await leader.close()


def endpoints(running: Running, pool: str = "pool-a") -> PoolState:
    """The pool's state in the worker."""
    group = running.worker.holdings.get(group_of(pool))
    assert group is not None
    (state,) = group.states.values()
    return state


def scraped(running: Running) -> None:
    """pool-a's pods have told their load: queues 1 and 5, caches 0.2 and 0.6."""
    for number, state in enumerate(endpoints(running).endpoints()):
        state.scraped(
            waiting=1.0 + 4 * number, running=2.0, kv=0.2 + 0.4 * number, at=1.0, inflight=0
        )


async def streamed(gateway: Gateway, model: str = "llama") -> None:
    """A request whose answer comes as events and tells its usage."""
    exchange = Exchange(gateway)
    await exchange.ask(model, {"x-llm-d-inference-fairness-id": "team-1"})
    await exchange.say(make.response_headers(STREAM))
    await exchange.say(make.response_body(b'data: {"x": 1}\n\n'))
    last = b"data: " + json.dumps({"usage": USAGE}).encode() + b"\n\n"
    await exchange.say(make.response_body(last, end_of_stream=True))
    await exchange.end()


async def scripted(running: Running, gateway: Gateway) -> None:
    """One streamed request, one rewritten, one that the model server fails, one refused."""
    scraped(running)
    await streamed(gateway)
    await streamed(gateway, "chat")
    failed = Exchange(gateway)
    await failed.ask("llama")
    await failed.say(make.response_headers({":status": "500"}, end_of_stream=True))
    await failed.end()
    refused = Exchange(gateway)
    none = make.request_headers(subset=["10.9.9.9:1"])
    await refused.say(none, make.request_body(b'{"model": "llama"}', end_of_stream=True))
    await refused.end()


async def test_names_kinds_and_labels_are_the_routers(tmp_path: Path) -> None:
    """Every metric has the router's name, kind and labels, and those of its pool; there is no
    further one under the router's prefix."""
    async with serving(tmp_path) as (running, gateway):
        await scripted(running, gateway)
        page = await page_of(running)
    for name, (kind, labels) in GOLDEN.items():
        assert page.kinds[f"llm_d_epp_{name}"] == kind, name
        assert page.labels[f"llm_d_epp_{name}"] == labels | HERE, name
    for name, (kind, labels) in OF_THE_WORKER.items():
        assert page.kinds[f"llm_d_epp_{name}"] == kind, name
        assert page.labels[f"llm_d_epp_{name}"] == labels, name
    shown = {n.removeprefix("llm_d_epp_") for n in page.kinds if n.startswith("llm_d_epp_")}
    assert shown == GOLDEN.keys() | OF_THE_WORKER.keys() | OTHERS
    assert not [name for name in page.kinds if name.startswith("inference_")]


async def test_values_after_scripted_requests(tmp_path: Path) -> None:
    """Counts, sums and gauges worked out by hand."""
    async with serving(tmp_path) as (running, gateway):
        await scripted(running, gateway)
        page = await page_of(running)
    plain = {
        "pool": "pool-a",
        "namespace": "ns1",
        "model_name": "llama",
        "target_model_name": "llama",
        "priority": "0",
    }
    team = {**plain, "fairness_id": "team-1"}
    none = {**plain, "fairness_id": "default-flow"}
    assert page.value("request_total", **team) == 1
    assert page.value("request_total", **none) == 1
    assert page.value("request_total") == 3
    assert page.value("request_error_total", **none, error_code="ModelServerError") == 1
    assert page.value("request_error_total", **none, error_code="ServiceUnavailable") == 1
    assert page.value("request_error_total") == 2
    assert page.value("request_running", **team) == 0
    size = len(json.dumps({"model": "llama", "messages": []}))
    assert page.value("request_size_bytes_sum", **team) == size
    answer = len('data: {"x": 1}\n\n') + len(json.dumps({"usage": USAGE})) + len("data: \n\n")
    assert page.value("response_size_bytes_sum", **team) == answer
    assert page.value("request_input_tokens_sum", **team) == 100
    assert page.value("request_output_tokens_sum", **team) == 20
    assert page.value("request_cached_tokens_sum", **team) == 64
    assert page.value("request_input_tokens_bucket", **team, le="16.0") == 0
    assert page.value("request_input_tokens_bucket", **team, le="128.0") == 1
    assert page.value("request_duration_seconds_count", **team) == 1
    assert page.value("request_duration_seconds_count", **none) == 1
    assert page.value("request_ttft_seconds_count", **team, streaming="true") == 1
    assert page.value("request_ttft_seconds_count", streaming="false") is None
    duration = page.value("request_duration_seconds_sum", **team)
    assert duration is not None
    assert page.value("request_ntpot_seconds_sum", **team) == pytest.approx(duration / 20)
    assert page.value("request_streaming_tpot_seconds_count", **team) == 1
    rewritten = {"model_rewrite_name": "newest", "model_name": "chat", "target_model": "chat-v2"}
    assert page.value("model_rewrite_decisions_total", pool="pool-a", **rewritten) == 1
    assert page.value("request_total", model_name="chat", target_model_name="chat-v2") == 1
    assert page.value("scheduler_attempts_total", status="success", port="8000") == 3
    assert page.value("scheduler_attempts_total", status="failure") == 1
    assert page.value("scheduler_e2e_duration_seconds_count", pool="pool-a") == 3
    own = {"name": "pool-a", "pool": "pool-a", "namespace": "ns1"}
    assert page.value("ready_endpoints", **own) == 2
    assert page.value("average_queue_size", **own) == 3
    assert page.value("std_dev_queue_size", **own) == 2
    assert page.value("average_running_requests", **own) == 2
    assert page.value("average_kv_cache_utilization", **own) == pytest.approx(0.4)
    assert page.value("std_dev_kv_cache_utilization", **own) == pytest.approx(0.2)
    queue = page.value("per_endpoint_queue_size", **own, model_server_endpoint="a-2-rank-0")
    assert queue == 5
    assert page.value("average_queue_size", pool="pool-b") is None  # unknown is not 0


async def test_running_is_0_after_every_end(tmp_path: Path) -> None:
    """Replays ray-project/ray#37943: cut before the pick, after it, in the response, refused; and
    it is 1 while a request runs."""
    async with serving(tmp_path) as (running, gateway):
        before = Exchange(gateway)
        await before.say(make.request_headers(), answers=0)
        before.cut()
        opened = [Exchange(gateway) for _ in range(2)]
        for exchange in opened:
            await exchange.ask("llama")
        await opened[1].say(make.response_headers(STREAM))
        page = await page_of(running)
        assert page.value("request_running", pool="pool-a", model_name="llama") == 2
        assert page.value("inflight_requests", pool="pool-a") == 2
        for exchange in opened:
            exchange.cut()
        await scripted(running, gateway)
        await until(lambda: running.worker.counters.streams_open == 0, "all are over")
        page = await page_of(running)
        assert page.value("request_running") == 0
        assert page.value("request_total") == 5
        assert page.value("request_duration_seconds_count") == 3  # not of those that were cut


async def test_series_go_with_their_pool(tmp_path: Path) -> None:
    """Also of pools that had no request, and also while nobody reads the page."""
    async with serving(tmp_path) as (running, gateway):
        await scripted(running, gateway)
        assert (await page_of(running)).pools() == {"pool-a", "pool-b"}
        (tmp_path / "pool-a.yaml").unlink()
        await until(lambda: len(running.worker.requests.table) == 0, "its rows are gone")
        assert (await page_of(running)).pools() == {"pool-b"}


async def test_the_old_names_only_where_they_are_wanted(tmp_path: Path) -> None:
    """With the labels and values of the new ones."""
    async with serving(tmp_path, twins=True) as (running, gateway):
        await scripted(running, gateway)
        page = await page_of(running)
    shown = {name for name in page.kinds if name.startswith("inference_")}
    assert shown == TWINS.keys()
    for old, new in TWINS.items():
        assert page.kinds[old] == page.kinds[f"llm_d_epp_{new}"], old
        assert page.labels[old] == page.labels[f"llm_d_epp_{new}"], old


async def test_made_up_models_are_counted_as_other(tmp_path: Path) -> None:
    """Replays llm-d/llm-d-router#1625: requests for ever new models; the models that somebody wrote
    down, and other pools, keep their series."""
    async with serving(tmp_path) as (running, gateway):
        for number in range(130):
            call = Exchange(gateway)
            await call.ask(f"m-{number}")
            call.cut()
        await streamed(gateway, "chat")
        other = Gateway(running.worker.addresses.ext_proc, "pool-b-epp.ns1:9002")
        await streamed(other, "real")
        await other.close()
        page = await page_of(running)
    assert page.value("request_total", pool="pool-a", model_name="other") == 30
    assert page.value("request_total", pool="pool-a", model_name="chat") == 1
    assert page.value("request_total", pool="pool-b", model_name="real") == 1
    assert page.value("request_total") == 132

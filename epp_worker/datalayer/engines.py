"""The inference engines whose metrics are read: which families, and what several series mean.

The families are those that the llm-d router reads by default, and `vllm:gpu_cache_usage_perc` of
older vLLMs (vllm#18354). Where a page has several matching series, the router takes the one with
the newest timestamp, of equals the first. Here it depends on what the series are:

- vllm: data-parallel engines behind one port, label `engine`. Queues add up, the fullest cache
  counts; timestamps say nothing. A pod whose second engine has 40 requests waiting is not idle.
- sglang: data-parallel ranks by `dp_rank`, and each may be told of by several tensor and pipeline
  ranks, and by priority. Within a rank the highest figure counts, ranks add up, and the fullest
  cache counts.
- triton, triton-tensorrt-llm: one series for each model of the server. Queues add up, the fullest
  cache counts.
- trtllm-serve, and all facts that describe rather than count (block sizes, numbers of blocks): the
  newest timestamp, of equals the first.

`nv_inference_exec_count`, Triton's "running", is what the router reads too: executions since the
start, which tell pods apart only as long as all have started together.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

DEFAULT_ENGINE = "vllm"


class Quantity(IntEnum):
    """What a family tells of."""

    WAITING = 0
    RUNNING = 1
    KV = 2
    KV_OLD = 3
    BLOCK_SIZE = 4
    BLOCKS = 5
    LORA = 6
    CACHE = 7


class Combine(IntEnum):
    """What several series of a family come to."""

    SUM = 0
    MAX = 1
    NEWEST = 2


@dataclass(frozen=True, slots=True)
class Family:
    """One family of an engine's page.

    Attributes:
        only: label and value that a series must have to count.
        replica: label that tells replicas apart: the highest value of each, summed.
    """

    name: bytes
    quantity: Quantity
    combine: Combine = Combine.NEWEST
    only: tuple[bytes, bytes] | None = None
    replica: bytes | None = None

    @property
    def share(self) -> bool:
        """Whether values are shares, 0..1."""
        return self.quantity in (Quantity.KV, Quantity.KV_OLD)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine's page.

    Attributes:
        needles: texts of which every family's name has one: each costs one search of the page, 8
            to 15 us for 49 kB, the longer the less; related families share one.
        cache_labels: of the family `Quantity.CACHE`: the block's size, the number of blocks.
        named: families by name.
        pattern: the start of a line that is a sample of a family; group 1 is its name.
    """

    name: str
    families: tuple[Family, ...]
    needles: tuple[bytes, ...]
    cache_labels: tuple[bytes, bytes] = (b"", b"")
    named: Mapping[bytes, tuple[Family, ...]] = field(init=False)
    pattern: re.Pattern[bytes] = field(init=False)

    def __post_init__(self) -> None:
        named: dict[bytes, tuple[Family, ...]] = {}
        for family in self.families:
            named[family.name] = (*named.get(family.name, ()), family)
        names = b"|".join(map(re.escape, named))
        object.__setattr__(self, "named", named)
        object.__setattr__(self, "pattern", re.compile(rb"[ \t]*(" + names + rb")(?=[{ \t])"))


VLLM = Engine(
    "vllm",
    (
        Family(b"vllm:num_requests_waiting", Quantity.WAITING, Combine.SUM),
        Family(b"vllm:num_requests_running", Quantity.RUNNING, Combine.SUM),
        Family(b"vllm:kv_cache_usage_perc", Quantity.KV, Combine.MAX),
        Family(b"vllm:gpu_cache_usage_perc", Quantity.KV_OLD, Combine.MAX),
        Family(b"vllm:lora_requests_info", Quantity.LORA),
        Family(b"vllm:cache_config_info", Quantity.CACHE),
    ),
    needles=(
        b"vllm:num_requests_",
        b"_cache_usage_perc",
        b"vllm:lora_requests_info",
        b"vllm:cache_config_info",
    ),
    cache_labels=(b"block_size", b"num_gpu_blocks"),
)

SGLANG = Engine(
    "sglang",
    (
        Family(b"sglang:num_queue_reqs", Quantity.WAITING, Combine.SUM, replica=b"dp_rank"),
        Family(b"sglang:num_running_reqs", Quantity.RUNNING, Combine.SUM, replica=b"dp_rank"),
        Family(b"sglang:token_usage", Quantity.KV, Combine.MAX),
        Family(b"sglang:cache_config_info", Quantity.CACHE),
    ),
    needles=(
        b"sglang:num_queue_reqs",
        b"sglang:num_running_reqs",
        b"sglang:token_usage",
        b"sglang:cache_config_info",
    ),
    cache_labels=(b"page_size", b"num_pages"),
)

TRTLLM_SERVE = Engine(
    "trtllm-serve",
    (
        Family(b"trtllm_num_requests_waiting", Quantity.WAITING),
        Family(b"trtllm_num_requests_running", Quantity.RUNNING),
        Family(b"trtllm_kv_cache_utilization", Quantity.KV),
        Family(b"trtllm_kv_cache_tokens_per_block", Quantity.BLOCK_SIZE),
        Family(b"trtllm_kv_cache_max_blocks", Quantity.BLOCKS),
    ),
    needles=(b"trtllm_num_requests_", b"trtllm_kv_cache_"),
)

_TRT_REQUESTS = b"nv_trt_llm_request_metrics"
_TRT_BLOCKS = b"nv_trt_llm_kv_cache_block_metrics"
_KIND = b"kv_cache_block_type"

TRITON_TRT = Engine(
    "triton-tensorrt-llm",
    (
        Family(_TRT_REQUESTS, Quantity.WAITING, Combine.SUM, (b"request_type", b"waiting")),
        Family(_TRT_REQUESTS, Quantity.RUNNING, Combine.SUM, (b"request_type", b"scheduled")),
        Family(_TRT_BLOCKS, Quantity.KV, Combine.MAX, (_KIND, b"fraction")),
        Family(_TRT_BLOCKS, Quantity.BLOCK_SIZE, only=(_KIND, b"tokens_per")),
        Family(_TRT_BLOCKS, Quantity.BLOCKS, only=(_KIND, b"max")),
    ),
    needles=(_TRT_REQUESTS, _TRT_BLOCKS),
)

TRITON = Engine(
    "triton",
    (
        Family(b"nv_inference_pending_request_count", Quantity.WAITING, Combine.SUM),
        Family(b"nv_inference_exec_count", Quantity.RUNNING, Combine.SUM),
    ),
    needles=(b"nv_inference_pending_request_count", b"nv_inference_exec_count"),
)

ENGINES: Mapping[str, Engine] = {
    engine.name: engine for engine in (VLLM, SGLANG, TRTLLM_SERVE, TRITON_TRT, TRITON)
}


def engine_of(name: str) -> Engine:
    """The engine that a pod's label names; vLLM for an absent or unknown one."""
    return ENGINES.get(name) or VLLM

"""Metrics pages as the engines write them, padded with other series to the size of real ones."""

from collections.abc import Callable, Mapping

_HISTOGRAMS = (
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prompt_tokens",
    "iteration_tokens_total",
)


def _family(name: str, kind: str, *samples: str) -> str:
    return f"# HELP {name} As the engine says.\n# TYPE {name} {kind}\n" + "".join(
        f"{name}{sample}\n" for sample in samples
    )


def _padding(prefix: str, labels: str, size: int) -> str:
    parts: list[str] = []
    total = number = 0
    while total < size:
        name = f"{prefix}{_HISTOGRAMS[number % len(_HISTOGRAMS)]}"
        rows = "".join(
            f'{name}_bucket{{{labels},le="{number + row / 16}"}} {number * row}.0\n'
            for row in range(16)
        )
        parts.append(f"# HELP {name} A histogram.\n# TYPE {name} histogram\n{rows}")
        total += len(parts[-1])
        number += 1
    return "".join(parts)


def vllm(size: int = 0) -> str:
    """Queue 3, running 5, cache a quarter full; adapters `sql` and `chat` run, `poet` waits, of at
    most 4; 27,500 blocks of 16 tokens."""
    labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
    head = _family("vllm:num_requests_running", "gauge", f"{{{labels}}} 5.0")
    head += _family("vllm:num_requests_waiting", "gauge", f"{{{labels}}} 3.0")
    head += _family("vllm:kv_cache_usage_perc", "gauge", f"{{{labels}}} 0.25")
    tail = _family(
        "vllm:cache_config_info",
        "gauge",
        '{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="27500"} 1.0',
    )
    tail += _family(
        "vllm:lora_requests_info",
        "gauge",
        '{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.7e+09',
        '{max_lora="4",running_lora_adapters="sql,chat",waiting_lora_adapters="poet"} '
        "1.7000000005e+09",
        '{max_lora="4",running_lora_adapters="sql",waiting_lora_adapters=""} 1.7000000001e+09',
    )
    return head + _padding("vllm:", labels, size - len(head) - len(tail)) + tail


def sglang(size: int = 0) -> str:
    """Two data-parallel ranks: queues 2 and 4, running 1 and 6, caches 0.1 and 0.5 full; 9,000
    pages of 64 tokens. Rank 1 is told of twice, once for each of its pipeline stages."""
    base = 'engine_type="unified",model_name="m",tp_rank="0"'
    ranks = (
        f'{{{base},pp_rank="0",dp_rank="0"}}',
        f'{{{base},pp_rank="0",dp_rank="1"}}',
        f'{{{base},pp_rank="1",dp_rank="1"}}',
    )
    figures = {
        "num_running_reqs": (1, 6, 5),
        "num_queue_reqs": (2, 4, 4),
        "token_usage": (0.1, 0.5, 0.4),
    }
    head = "".join(
        _family(f"sglang:{name}", "gauge", *(f"{r} {v}" for r, v in zip(ranks, row, strict=True)))
        for name, row in figures.items()
    )
    head += _family(
        "sglang:cache_config_info", "gauge", '{page_size="64",num_pages="9000",model_name="m"} 1.0'
    )
    return head + _padding("sglang:", base, size - len(head))


def trtllm_serve(size: int = 0) -> str:
    """Queue 7, running 8, cache 0.75 full; 4,096 blocks of 32 tokens."""
    labels = '{engine_type="undefined",model_name="m"}'
    figures = {
        "num_requests_waiting": 7,
        "num_requests_running": 8,
        "kv_cache_utilization": 0.75,
        "kv_cache_tokens_per_block": 32,
        "kv_cache_max_blocks": 4096,
    }
    head = "".join(
        _family(f"trtllm_{name}", "gauge", f"{labels} {value}") for name, value in figures.items()
    )
    return head + _padding("trtllm_", labels[1:-1], size - len(head))


def triton_tensorrt_llm(size: int = 0) -> str:
    """Two models: queues 2 and 1, running 3 and 4, caches 0.5 and 0.25 full; the first has 512
    blocks of 64 tokens."""
    models = ('model="a",version="1"', 'model="b",version="1"')

    def rows(label: str, figures: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
        return tuple(
            f'{{{model},{label}="{kind}"}} {value}'
            for kind, values in figures.items()
            for model, value in zip(models, values, strict=True)
        )

    head = _family(
        "nv_trt_llm_request_metrics",
        "gauge",
        *rows("request_type", {"waiting": (2, 1), "context": (9, 9), "scheduled": (3, 4)}),
    )
    head += _family(
        "nv_trt_llm_kv_cache_block_metrics",
        "gauge",
        *rows(
            "kv_cache_block_type",
            {"fraction": (0.5, 0.25), "tokens_per": (64, 32), "used": (256, 128), "max": (512, 99)},
        ),
    )
    return head + _padding("nv_", models[0], size - len(head))


def triton(size: int = 0) -> str:
    """Two models: pending 4 and 5; executed 100 and 20."""
    head = _family(
        "nv_inference_exec_count",
        "counter",
        '{model="a",version="1"} 100',
        '{model="b",version="1"} 20',
    )
    head += _family(
        "nv_inference_pending_request_count",
        "gauge",
        '{model="a",version="1"} 4',
        '{model="b",version="1"} 5',
    )
    return head + _padding("nv_", 'model="a",version="1"', size - len(head))


PAGES: Mapping[str, Callable[[int], str]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm-serve": trtllm_serve,
    "triton-tensorrt-llm": triton_tensorrt_llm,
    "triton": triton,
}
"""By engine name."""

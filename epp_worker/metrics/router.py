"""The llm-d router's names as this fleet shows them: what docs/metrics.md says of them.

They are written by `epp_worker.requests`, as text; a test holds that both agree.
"""

from collections.abc import Iterator
from dataclasses import replace

from epp_worker.requests.measures import MEANINGS, PICK_SECONDS, PREFIX
from fleet.metrics import Declared, counter, gauge, histogram

_POOL = ("namespace", "pool")
_ROW = ("model_name", "target_model_name", "fairness_id", "priority", *_POOL)
_NAMED = ("name", *_POOL)
_ENDPOINT = ("endpoint_name", "producer_name", *_POOL)
_ROWS = "rows"
_ENDPOINTS = "ready endpoints of owned pools"
_OWNED = "of owned pools"
_ASKED = "of pools that had requests"


def _buckets(bounds: int) -> str:
    return f"{bounds + 1} buckets"


REQUESTS = counter(
    f"{PREFIX}request_total",
    "Requests for which an endpoint was picked.",
    _ROW,
    series=_ROWS,
    when=_ASKED,
)
REQUEST_ERRORS = counter(
    f"{PREFIX}request_error_total",
    "Requests refused, or failed by model servers.",
    (*_ROW, "error_code"),
    series=f"{_ROWS} x 5 codes",
    when="of pools that had such requests",
)
RUNNING = gauge(
    f"{PREFIX}request_running",
    "Picked requests that are not over.",
    _ROW,
    series=_ROWS,
    when=_ASKED,
)
PICKING = histogram(
    f"{PREFIX}scheduler_e2e_duration_seconds",
    "How long choosing an endpoint took.",
    _POOL,
    series=f"pools that had requests x {_buckets(len(PICK_SECONDS))}",
    when=_ASKED,
)
ATTEMPTS = counter(
    f"{PREFIX}scheduler_attempts_total",
    "Choices of an endpoint, by outcome.",
    ("status", "target_model_name", "endpoint_name", "port", *_POOL),
    series="endpoints x 9 models at most, and pools x models that were refused",
    when=_ASKED,
)
REWRITES = counter(
    f"{PREFIX}model_rewrite_decisions_total",
    "Requests rewritten, by rewrite.",
    ("model_rewrite_name", "model_name", "target_model", *_POOL),
    series="rules of InferenceModelRewrites",
    when="after the first rewritten request",
)
_TEXTS = {
    "kv_cache_utilization": "KV cache in use, 0..1",
    "queue_size": "requests that wait in the model server",
    "running_requests": "requests being computed",
}
READY = gauge(
    f"{PREFIX}ready_endpoints", "Ready endpoints.", _NAMED, series="owned pools", when=_OWNED
)
QUEUE = gauge(
    f"{PREFIX}per_endpoint_queue_size",
    "Requests that wait in the model server.",
    ("model_server_endpoint", *_NAMED),
    series=_ENDPOINTS,
    when="of endpoints whose metrics were read",
)
INFLIGHT = gauge(
    f"{PREFIX}inflight_requests",
    "Requests in flight.",
    _ENDPOINT,
    series=_ENDPOINTS,
    when=_OWNED,
)
TOKENS = gauge(
    f"{PREFIX}inflight_tokens",
    "Tokens of prompts in flight.",
    _ENDPOINT,
    series=_ENDPOINTS,
    when="of owned pools whose configuration has a plugin that asks for it",
)
INFO = gauge(f"{PREFIX}info", "The software's build.", ("commit", "build_ref"))
POLL_ERRORS = counter(
    f"{PREFIX}datalayer_poll_errors_total", "Scrapes that failed.", ("source_type",)
)

_OLD = {
    REQUESTS.name: "inference_objective_request_total",
    RUNNING.name: "inference_objective_running_requests",
    PICKING.name: "inference_extension_scheduler_e2e_duration_seconds",
    ATTEMPTS.name: "inference_extension_scheduler_attempts_total",
    INFO.name: "inference_extension_info",
    READY.name: "inference_pool_ready_pods",
    f"{PREFIX}average_kv_cache_utilization": "inference_pool_average_kv_cache_utilization",
    f"{PREFIX}average_queue_size": "inference_pool_average_queue_size",
}


def measures() -> Iterator[Declared]:
    """The histograms of requests."""
    labels: dict[str, tuple[str, ...]] = {}
    for meaning in MEANINGS:
        further = tuple(filter(None, (meaning.label.partition("=")[0],)))
        labels[meaning.name] = (*_ROW, *further)
    for meaning in {meaning.name: meaning for meaning in MEANINGS}.values():
        yield histogram(
            PREFIX + meaning.name,
            meaning.text,
            labels[meaning.name],
            series=f"{_ROWS} x {_buckets(len(meaning.bounds))}",
            when="of pools whose responses tell it",
        )


def averages() -> Iterator[Declared]:
    """Means and deviations over the endpoints of a pool."""
    for prefix, word in (("average", "Mean"), ("std_dev", "Standard deviation")):
        for figure, text in _TEXTS.items():
            yield gauge(
                f"{PREFIX}{prefix}_{figure}",
                f"{word} of: {text}.",
                _NAMED,
                series="owned pools",
                when="of owned pools whose endpoints' metrics were read",
            )


def new_names() -> tuple[Declared, ...]:
    """All under the router's present names."""
    return (
        *(REQUESTS, REQUEST_ERRORS, RUNNING),
        *measures(),
        *(PICKING, ATTEMPTS, REWRITES),
        *averages(),
        *(READY, QUEUE, INFLIGHT, TOKENS, INFO, POLL_ERRORS),
    )


def old_names() -> Iterator[Declared]:
    """The twins, with the labels of the new names."""
    twins = _OLD | {PREFIX + meaning.name: meaning.old for meaning in MEANINGS if meaning.old}
    for declared in new_names():
        old = twins.get(declared.name)
        if old is not None:
            when = f"where worker.legacy_metrics is on; {declared.when}".rstrip("; ")
            yield replace(declared, name=old, when=when)

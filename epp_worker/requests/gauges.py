"""Gauges of pools and their endpoints, from what was scraped last.

Only the owner of a pool shows them, so that a sum over workers counts every endpoint once. What is
not known is not shown, and counts nowhere: it is not 0.
"""

from collections.abc import Iterator
from math import fsum, sqrt

from epp_worker.requests.measures import PREFIX
from epp_worker.requests.moment import HeldPool, Moment
from epp_worker.requests.text import Family, escaped, labels

PRODUCER = "inflight-load-producer"
"""The router's plugin that counts requests in flight."""

_OLD = {
    "average_kv_cache_utilization": "inference_pool_average_kv_cache_utilization",
    "average_queue_size": "inference_pool_average_queue_size",
    "ready_endpoints": "inference_pool_ready_pods",
}

_FIGURES = {
    "kv_cache_utilization": "KV cache in use, 0..1",
    "queue_size": "requests that wait in the model server",
    "running_requests": "requests being computed",
}

Samples = list[tuple[str, float]]


def pool_families(moment: Moment) -> Iterator[str]:
    """The families of all owned pools."""
    owned = [(pool, _text(pool)) for pool in moment.pools if pool.owned]
    means: dict[str, Samples] = {figure: [] for figure in _FIGURES}
    spreads: dict[str, Samples] = {figure: [] for figure in _FIGURES}
    for pool, name in owned:
        for figure, known in _known(pool):
            if known:
                mean = fsum(known) / len(known)
                means[figure].append((name, mean))
                spread = fsum([(value - mean) ** 2 for value in known]) / len(known)
                spreads[figure].append((name, sqrt(spread)))
    for figure, text in _FIGURES.items():
        yield from _gauge(f"average_{figure}", f"Mean of: {text}.", means[figure], moment)
        yield from _gauge(
            f"std_dev_{figure}", f"Standard deviation of: {text}.", spreads[figure], moment
        )
    ready: Samples = [(name, len(pool.endpoints)) for pool, name in owned]
    yield from _gauge("ready_endpoints", "Ready endpoints.", ready, moment)
    queues: Samples = []
    requests: Samples = []
    tokens: Samples = []
    for pool, name in owned:
        producer = labels(producer_name=PRODUCER, namespace=pool.ref.namespace, pool=pool.ref.name)
        for state in pool.endpoints:
            called = escaped(state.name)
            waiting = state.waiting
            if waiting is not None:
                queues.append((f'model_server_endpoint="{called}",{name}', waiting))
            endpoint = f'endpoint_name="{called}",{producer}'
            requests.append((endpoint, state.inflight))
            if pool.tokens:
                tokens.append((endpoint, state.tokens))
    yield from _gauge(
        "per_endpoint_queue_size", "Requests that wait in the model server.", queues, moment
    )
    yield from _gauge("inflight_requests", "Requests in flight.", requests, moment)
    yield from _gauge("inflight_tokens", "Tokens of prompts in flight.", tokens, moment)


def _known(pool: HeldPool) -> tuple[tuple[str, list[float]], ...]:
    """What is known of its endpoints, by figure. Written out: there are thousands of them."""
    states = pool.endpoints
    return (
        ("kv_cache_utilization", [kv for state in states if (kv := state.kv) is not None]),
        ("queue_size", [size for state in states if (size := state.waiting) is not None]),
        ("running_requests", [count for state in states if (count := state.running) is not None]),
    )


def _gauge(name: str, text: str, samples: Samples, moment: Moment) -> Iterator[str]:
    yield Family(PREFIX + name, "gauge", text).write(samples)
    if moment.twins and name in _OLD:
        yield Family(_OLD[name], "gauge", text).write(samples)


def _text(pool: HeldPool) -> str:
    ref = pool.ref
    return labels(name=ref.name, namespace=ref.namespace, pool=ref.name)

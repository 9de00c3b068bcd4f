"""The llm-d router's metrics as text: its names and labels, and with them `namespace` and `pool`.

The old names, where they are wanted, have the labels of the new ones.
"""

from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import chain

from epp_worker.requests.gauges import pool_families
from epp_worker.requests.measures import MEANINGS, PICK_SECONDS, PREFIX
from epp_worker.requests.moment import Moment
from epp_worker.requests.rows import PoolRows, Row
from epp_worker.requests.text import Family, HistogramFamily, escaped, joined, labels
from epp_worker.scheduling.prefix.figures import Histogram
from fleet.model.identity import PoolRef

Pools = list[tuple[PoolRef, PoolRows, list[Row]]]


def write(moment: Moment) -> Iterator[bytes]:
    """All families of a moment; may take long, so not on the serving loop."""
    pools: Pools = [(ref, rows, rows.all()) for ref, rows in moment.rows]
    for ref, _, rows in pools:
        for row in rows:
            if not row.text:
                row.text = _row_text(ref, row)
    families = (
        _requests(pools, twins=moment.twins),
        _measures(pools, twins=moment.twins),
        _picking(pools, moment),
        pool_families(moment),
        _worker(moment),
    )
    for family in chain.from_iterable(families):
        yield family.encode("utf-8", "replace")


def _pool_text(ref: PoolRef) -> str:
    return labels(namespace=ref.namespace, pool=ref.name)


def _row_text(ref: PoolRef, row: Row) -> str:
    key = row.key
    own = labels(
        model_name=key.model,
        target_model_name=key.target,
        fairness_id=key.fairness,
        priority=str(key.priority),
    )
    return joined(own, _pool_text(ref))


_VERSION = version("epp-fleet")
_PICKED = ("counter", "Requests for which an endpoint was picked.")
_RUNNING = ("gauge", "Picked requests that are not over.")
_E2E = (PICK_SECONDS, "How long choosing an endpoint took.")
_ATTEMPTS = ("counter", "Choices of an endpoint, by outcome.")
_INFO = ("gauge", "The software's build.")


def named(name: str, old: str, twins: bool, write_as: Callable[[str], str]) -> Iterator[str]:
    """A family under its name, and under its old one if twins are wanted."""
    yield write_as(PREFIX + name)
    if twins:
        yield write_as(old)


def _requests(pools: Pools, *, twins: bool) -> Iterator[str]:
    every = [row for _, _, rows in pools for row in rows]

    def picked(name: str) -> str:
        shown = [(row.text, row.picked) for row in every if row.picked]
        return Family(name, *_PICKED).write(shown)

    def running(name: str) -> str:
        return Family(name, *_RUNNING).write([(r.text, r.running) for r in every if r.picked])

    yield from named("request_total", "inference_objective_request_total", twins, picked)
    failed = Family(
        f"{PREFIX}request_error_total", "counter", "Requests refused, or failed by model servers."
    )
    yield failed.write(
        (joined(row.text, labels(error_code=code)), count)
        for row in every
        for code, count in list(row.errors.items())
    )
    yield from named("request_running", "inference_objective_running_requests", twins, running)


def _measures(pools: Pools, *, twins: bool) -> Iterator[str]:
    every = [row for _, _, rows in pools for row in rows]
    by_name: dict[str, list[int]] = {}
    for measure, meaning in enumerate(MEANINGS):
        by_name.setdefault(meaning.name, []).append(measure)
    for name, measures in by_name.items():
        meaning = MEANINGS[measures[0]]
        samples = [
            (joined(row.text, MEANINGS[measure].label), histogram)
            for row in every
            for measure in measures
            if (histogram := row.measures[measure]) is not None
        ]
        yield HistogramFamily(PREFIX + name, meaning.bounds, meaning.text).write(samples)
        if twins and meaning.old:
            yield HistogramFamily(meaning.old, meaning.bounds, meaning.text).write(samples)


def _picking(pools: Pools, moment: Moment) -> Iterator[str]:
    taken: list[tuple[str, Histogram]] = [
        (_pool_text(ref), rows.picks) for ref, rows, _ in pools if any(rows.picks.counts)
    ]
    attempts = [*_placed(moment), *_unplaced(pools)]
    extension = "inference_extension_"
    yield from named(
        "scheduler_e2e_duration_seconds",
        f"{extension}scheduler_e2e_duration_seconds",
        moment.twins,
        lambda name: HistogramFamily(name, *_E2E).write(taken),
    )
    yield from named(
        "scheduler_attempts_total",
        f"{extension}scheduler_attempts_total",
        moment.twins,
        lambda name: Family(name, *_ATTEMPTS).write(attempts),
    )
    decisions = Family(
        f"{PREFIX}model_rewrite_decisions_total", "counter", "Requests rewritten, by rewrite."
    )
    yield decisions.write(
        (
            joined(
                labels(model_rewrite_name=name, model_name=model, target_model=target),
                _pool_text(ref),
            ),
            count,
        )
        for ref, rows, _ in pools
        for (name, model, target), count in list(rows.rewrites.items())
    )


def _placed(moment: Moment) -> Iterator[tuple[str, float]]:
    for pool in moment.pools:
        where = _pool_text(pool.ref)
        for state in pool.endpoints:
            if not state.picks:
                continue
            port = state.key.rpartition(":")[2]
            endpoint = f'endpoint_name="{escaped(state.name)}",port="{port}",{where}'
            for target, count in list(state.picks.items()):
                yield f'status="success",target_model_name="{escaped(target)}",{endpoint}', count


def _unplaced(pools: Pools) -> Iterable[tuple[str, float]]:
    for ref, _, rows in pools:
        by_target: dict[str, int] = {}
        for row in rows:
            if row.unplaced:
                target = row.key.target
                by_target[target] = by_target.get(target, 0) + row.unplaced
        for target, count in by_target.items():
            text = labels(status="failure", target_model_name=target, endpoint_name="", port="")
            yield joined(text, _pool_text(ref)), count


def _worker(moment: Moment) -> Iterator[str]:
    info = [(labels(commit="", build_ref=_VERSION), 1.0)]
    polls = Family(f"{PREFIX}datalayer_poll_errors_total", "counter", "Scrapes that failed.")
    yield polls.write([(labels(source_type="metrics-data-source"), moment.poll_errors)])
    yield from named(
        "info",
        "inference_extension_info",
        moment.twins,
        lambda name: Family(name, *_INFO).write(info),
    )

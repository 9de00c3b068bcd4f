"""Which of a pool's endpoints is best: pure arithmetic over what is known of each.

The score of an endpoint is the weighted sum of three parts, each in 0..1:

- queue: relative to the candidates, (max - q) / (max - min), 1 for all when equal. q is the
  reported queue plus our own requests that the last metrics cannot have shown yet. Without that
  addition every request of a burst would see the same snapshot and go to the same pod.
- KV cache: 1 - usage.
- in flight: (max - n) / max over our own open requests.

What is not known counts as the mean of what is known of the others: unknown is not best. Endpoints
whose metrics are overdue, or whose port refused us, are candidates only when nobody else is.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

QUEUE_WEIGHT = 2.0
KV_WEIGHT = 2.0
INFLIGHT_WEIGHT = 1.0
"""Queue and KV cache as in the default profile of the llm-d router; in flight breaks ties."""

TIE = 1e-9
"""Scores closer than this are equal; arithmetic noise must not make one pod the favourite."""


class Candidate(Protocol):
    """What scoring reads of an endpoint."""

    waiting: float | None
    kv: float | None
    metrics_at: float
    inflight: int
    inflight_seen: int
    failures: int
    refused: bool


C = TypeVar("C", bound=Candidate)


def is_last_resort(candidate: Candidate, oldest: float) -> bool:
    """Whether others go first: the port refused us, or metrics older than the time `oldest`.

    An endpoint that nobody has tried to scrape yet is unknown, not suspect.
    """
    if candidate.refused:
        return True
    if candidate.metrics_at >= oldest:
        return False
    return candidate.failures > 0 or candidate.metrics_at != float("-inf")


def eligible(candidates: Sequence[C], oldest: float) -> Sequence[C]:
    """The candidates that are no last resort; all of them if there is no other."""
    return [c for c in candidates if not is_last_resort(c, oldest)] or candidates


def best(candidates: Sequence[C], oldest: float) -> list[C]:
    """All candidates that share the highest score; at least one if there is a candidate.

    Args:
        candidates: ready endpoints that the request may go to.
        oldest: metrics from before this moment are overdue (same clock as `metrics_at`).
    """
    chosen = eligible(candidates, oldest)
    if len(chosen) < 2:
        return list(chosen)
    scores = _scores(chosen, oldest)
    limit = max(scores) - TIE
    return [c for c, score in zip(chosen, scores, strict=True) if score >= limit]


def _scores(chosen: Sequence[Candidate], oldest: float) -> list[float]:
    fresh = [c.metrics_at >= oldest for c in chosen]
    mean_queue = _mean([c.waiting for c, ok in zip(chosen, fresh, strict=True) if ok])
    mean_kv = _mean([c.kv for c, ok in zip(chosen, fresh, strict=True) if ok])
    queues = []
    for c, ok in zip(chosen, fresh, strict=True):
        reported = c.waiting if ok and c.waiting is not None else mean_queue
        queues.append(reported + max(0, c.inflight - c.inflight_seen))
    longest = max(queues)
    spread = longest - min(queues)
    most = max(c.inflight for c in chosen)
    scores = []
    for c, ok, queue in zip(chosen, fresh, queues, strict=True):
        score = KV_WEIGHT * (1.0 - (c.kv if ok and c.kv is not None else mean_kv))
        score += QUEUE_WEIGHT * ((longest - queue) / spread if spread > TIE else 1.0)
        score += INFLIGHT_WEIGHT * ((most - c.inflight) / most if most else 1.0)
        scores.append(score)
    return scores


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0

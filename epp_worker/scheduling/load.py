"""How loaded endpoints are: what they report, and what that report cannot show yet.

A report is some tens of milliseconds old, and all requests of a burst would see the same one. So
every request picked since counts as queued. What is not known (never scraped, overdue, or not on
the page) counts as the mean of what is known of the others: unknown is not best.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import NEVER, EndpointState
from epp_worker.scheduling.plugin import Candidates

BYTES_PER_TOKEN: Final = 4
"""As the llm-d router estimates tokens of a text."""

_inflight: Final = attrgetter("inflight")


def eligible(candidates: Candidates, oldest: float) -> Candidates:
    """Those that are no last resort; all of them if there is no other.

    A last resort is who refused a connection, or whose metrics are overdue. An endpoint that nobody
    has tried to scrape yet is unknown, not suspect.
    """
    for each in candidates:
        if each.refused or each.metrics_at < oldest:
            break
    else:
        return candidates
    suspects = [c for c in candidates if c.refused or c.metrics_at < oldest]
    last = {id(c) for c in suspects if c.refused or c.failures > 0 or c.metrics_at != NEVER}
    return [c for c in candidates if id(c) not in last] or candidates


def queues(candidates: Candidates, oldest: float) -> list[float]:
    """Requests that wait at each: as reported, and those picked since."""
    reported = _filled([c.waiting if c.metrics_at >= oldest else None for c in candidates])
    return [
        value + max(0, c.inflight - c.inflight_seen)
        for value, c in zip(reported, candidates, strict=True)
    ]


def running(candidates: Candidates, oldest: float) -> list[float]:
    """Requests being computed at each."""
    return _filled([c.running if c.metrics_at >= oldest else None for c in candidates])


def cache_use(candidates: Candidates, oldest: float) -> list[float]:
    """KV cache in use at each, 0..1."""
    return _filled([c.kv if c.metrics_at >= oldest else None for c in candidates])


def _filled(values: Sequence[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if value is None else value for value in values]


def relative(values: Sequence[float]) -> list[float]:
    """(max - v) / (max - min): 1 for the least, 0 for the most; 1 for all when equal."""
    most, least = max(values), min(values)
    spread = most - least
    if spread <= 0:
        return [1.0] * len(values)
    return [(most - value) / spread for value in values]


def weighted_load(
    candidates: Candidates, oldest: float, queue: float, cache: float, inflight: float
) -> list[float]:
    """The weighted sum of queue-scorer, kv-cache-utilization-scorer and active-request-scorer.

    The three in two short passes: one for the queues, whose spread must be known, one for the sums,
    from which a part that is the same for all is left out.
    """
    states = list(candidates)
    waits: list[float] = []
    longest, shortest, most = 0.0, 0.0, 0
    for each in states:
        waiting = each.waiting
        if waiting is None or each.kv is None or each.metrics_at < oldest:
            return _with_unknown(states, oldest, queue, cache, inflight)
        count = each.inflight
        unseen = count - each.inflight_seen
        wait = waiting + unseen if unseen > 0 else waiting
        if not waits:
            longest = shortest = wait
        elif wait > longest:
            longest = wait
        elif wait < shortest:
            shortest = wait
        waits.append(wait)
        if count > most:
            most = count
    per_wait, per_count, best = _shares(longest - shortest, longest, most, queue, cache, inflight)
    for i, each in enumerate(states):
        waits[i] = best - waits[i] * per_wait - (each.kv or 0.0) * cache - each.inflight * per_count
    return waits


def _with_unknown(
    states: list[EndpointState], oldest: float, queue: float, cache: float, inflight: float
) -> list[float]:
    """`weighted_load` where something is not known of somebody."""
    waits, uses = queues(states, oldest), cache_use(states, oldest)
    longest = max(waits)
    spread = longest - min(waits)
    most = max(each.inflight for each in states)
    per_wait, per_count, best = _shares(spread, longest, most, queue, cache, inflight)
    return [
        best - wait * per_wait - use * cache - each.inflight * per_count
        for each, wait, use in zip(states, waits, uses, strict=True)
    ]


def _shares(
    spread: float, longest: float, most: int, queue: float, cache: float, inflight: float
) -> tuple[float, float, float]:
    """What a queued request costs, what one in flight costs, and what is left of nothing."""
    per_wait = queue / spread if spread > 0 else 0.0
    per_count = inflight / most if most > 0 else 0.0
    return per_wait, per_count, cache + inflight + (per_wait * longest if spread > 0 else queue)


class Reported:
    """What all endpoints of a pool have reported, as `weighted_load` reads it: that changes a few
    times per second, and is read thousands of times. What is in flight is read anew each time.

    Attributes:
        known_at: the count of changes.
        until: when the first of these reports is overdue.
        used: of the cache, weighted.
    """

    __slots__ = ("candidates", "changes", "known_at", "seen", "until", "used", "waiting")

    def __init__(
        self,
        candidates: Candidates,
        until: float,
        waiting: Sequence[float],
        seen: Sequence[int],
        used: Sequence[float],
    ) -> None:
        self.candidates: Final = candidates
        self.changes: Final = candidates[0].changes
        self.known_at: Final = self.changes.count
        self.until: Final = until
        self.waiting: Final = waiting
        self.seen: Final = seen
        self.used: Final = used

    def holds(self, candidates: Candidates, oldest: float) -> bool:
        """Whether it is still what these very endpoints report."""
        return (
            candidates is self.candidates
            and self.changes.count == self.known_at
            and oldest <= self.until
        )

    def load(self, queue: float, cache: float) -> list[float]:
        """As `weighted_load` without requests in flight."""
        counts = map(_inflight, self.candidates)
        waits = [
            waiting + (count - seen) if count > seen else waiting
            for waiting, seen, count in zip(self.waiting, self.seen, counts, strict=True)
        ]
        longest = max(waits)
        spread = longest - min(waits)
        if spread <= 0:
            best = cache + queue
            return [best - use for use in self.used]
        per_wait = queue / spread
        best = cache + per_wait * longest
        return [best - wait * per_wait - use for wait, use in zip(waits, self.used, strict=True)]


def read_reported(candidates: Candidates, oldest: float, cache: float) -> Reported | None:
    """None where something is missing or overdue, or they are not of one pool."""
    changes = candidates[0].changes
    waiting: list[float] = []
    used: list[float] = []
    for each in candidates:
        if each.waiting is None or each.kv is None or each.metrics_at < oldest:
            return None
        if each.changes is not changes:
            return None
        waiting.append(each.waiting)
        used.append(each.kv * cache)
    seen = [each.inflight_seen for each in candidates]
    until = min(each.metrics_at for each in candidates)
    return Reported(candidates, until, waiting, seen, used)


def prompt_tokens(request: PickRequest) -> int:
    """How long the prompt is: counted if the client sent tokens, else estimated; 0 = unknown."""
    ids = request.hints.token_ids
    return len(ids) if ids else -(-len(request.hints.prompt) // BYTES_PER_TOKEN)

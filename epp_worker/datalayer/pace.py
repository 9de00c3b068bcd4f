"""How often a pool's endpoints are read: pure arithmetic.

A busy pool needs fresh figures, an idle one needs hardly any, and a worker that holds a hundred
pools must not spend its core on reading pages. A failing pod is asked less and less often, but
never given up: it may have been asked before its engine was up.
"""

from fleet.settings.model import ScrapeSettings

FIXED_COST_SECONDS = 0.00004
"""Processor time of one scrape besides sending, receiving and reading: the loop and its timers."""

FIRST_BACK_OFF_SECONDS = 0.25
LONGEST_BACK_OFF_SECONDS = 5.0
"""A pod of a pool with traffic that recovers is seen within this time, any other at its pool's next
scrape; 200 refusing pods cost 40 attempts/s at most."""

LEAST_STALE_SECONDS = 2.0
STALE_INTERVALS = 3.0
"""Metrics are overdue after this many intervals, and not before the least."""


def base_interval(rate: float, settings: ScrapeSettings) -> float:
    """Seconds between scrapes of each endpoint of a pool with `rate` requests/s."""
    if rate <= 0.0:
        return settings.idle_interval_seconds
    wanted = 1.0 / (2.0 * rate)
    return min(max(wanted, settings.interval_seconds), settings.idle_interval_seconds)


def stretch(scrapes_per_second: float, cost_seconds: float, settings: ScrapeSettings) -> float:
    """The factor >= 1 on all intervals that keeps scraping within its share of a core."""
    return max(1.0, scrapes_per_second * cost_seconds / settings.budget_ratio)


def hurried(rate: float, factor: float, settings: ScrapeSettings) -> float:
    """Least seconds between two scrapes when a pick finds its data old.

    With room in the budget (`factor` 1) the shortest interval; the more all intervals are
    stretched by `factor`, the less is left for extra scrapes: they would use the share of the core
    that the stretching has just saved.
    """
    return max(settings.interval_seconds, base_interval(rate, settings) * (factor - 1.0))


def back_off(failures: int) -> float:
    """Seconds until a pod with so many failures in a row is tried again."""
    return float(
        min(FIRST_BACK_OFF_SECONDS * 2.0 ** min(failures - 1, 10), LONGEST_BACK_OFF_SECONDS)
    )


def stale_after(interval: float) -> float:
    """Seconds after which metrics read every `interval` seconds are overdue."""
    return max(LEAST_STALE_SECONDS, STALE_INTERVALS * interval)

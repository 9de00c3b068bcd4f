"""What the scraper has done, as its metrics tell it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScrapeCounts:
    """Since the start, but `endpoints_failing`, which is now.

    Attributes:
        good: scrapes that gave a page.
        failed: scrapes that did not.
        dropped_values: samples with an impossible value.
        endpoints_failing: ready endpoints whose last scrape failed.
    """

    good: int = 0
    failed: int = 0
    dropped_values: int = 0
    endpoints_failing: int = 0

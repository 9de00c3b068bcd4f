"""What processes show to Prometheus: each series is declared once, and shown by its declaration.

The declaration holds what a page needs (name, type, labels, meaning) and what its reader needs
besides (how many series there may be, under which condition they appear): docs/metrics.md is made
from it (`fleet.metrics.reference`).
"""

from fleet.metrics.collected import Collected, Families
from fleet.metrics.declared import Declared, Kind, counter, declared_in, gauge, histogram
from fleet.metrics.histogram import Histogram

__all__ = [
    "Collected",
    "Declared",
    "Families",
    "Histogram",
    "Kind",
    "counter",
    "declared_in",
    "gauge",
    "histogram",
]

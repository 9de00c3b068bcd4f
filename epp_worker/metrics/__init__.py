"""What Prometheus reads of a worker.

The serving loop only keeps plain numbers. A scrape copies them in one step on the loop
(`epp_worker.gathering`) and renders the page in a thread, so that thousands of endpoints cost the
streams nothing but the copy.
"""

from epp_worker.metrics.figures import Figures
from epp_worker.metrics.page import MetricsPage
from epp_worker.metrics.picks import PickCounts

__all__ = ["Figures", "MetricsPage", "PickCounts"]

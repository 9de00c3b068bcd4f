"""The coordinator's metrics: counters where things happen, gauges read from the view when asked.

A term counts plain numbers (`coordinator.metrics.leading`); nothing is rendered before a scrape.
Series of single pools and workers are the leader's alone: of two replicas that both showed them
Prometheus would keep both.
"""

from coordinator.metrics.leading import TermFigures
from coordinator.metrics.registry import Metrics

__all__ = ["Metrics", "TermFigures"]

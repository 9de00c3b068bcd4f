"""The declaration of a metric, and how its numbers become a family."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import ModuleType

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from fleet.metrics.histogram import Histogram


class Kind(StrEnum):
    """As `# TYPE` has it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Declared:
    """One metric of a process.

    Attributes:
        name: of its samples; a counter's ends in `_total`, a histogram's has no suffix.
        text: what it means, as `# HELP` has it.
        series: how many there may be in one process, in words for people.
        when: under which condition it appears; "" = always.
    """

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()
    series: str = "1"
    when: str = ""

    def of(self, value: float) -> Metric:
        """The family of a metric without labels."""
        return self.rows([((), value)])

    def by(self, values: Mapping[str, float]) -> Metric:
        """The family of a metric with one label, by its values."""
        return self.rows(((key,), value) for key, value in values.items())

    def rows(self, rows: Iterable[tuple[Sequence[str], float]]) -> Metric:
        """The family with these samples, each with its labels' values in order."""
        family: CounterMetricFamily | GaugeMetricFamily
        if self.kind is Kind.COUNTER:
            family = CounterMetricFamily(self.name, self.text, labels=self.labels)
        else:
            family = GaugeMetricFamily(self.name, self.text, labels=self.labels)
        for labels, value in rows:
            family.add_metric(labels, value)
        return family

    def distribution(self, rows: Iterable[tuple[Sequence[str], Histogram]]) -> Metric:
        """The family of a histogram."""
        family = HistogramMetricFamily(self.name, self.text, labels=self.labels)
        for labels, each in rows:
            family.add_metric(labels, each.buckets(), each.total)
        return family


def counter(
    name: str, text: str, labels: Sequence[str] = (), *, series: str = "1", when: str = ""
) -> Declared:
    """Declares a counter."""
    return Declared(name, Kind.COUNTER, text, tuple(labels), series, when)


def gauge(
    name: str, text: str, labels: Sequence[str] = (), *, series: str = "1", when: str = ""
) -> Declared:
    """Declares a gauge."""
    return Declared(name, Kind.GAUGE, text, tuple(labels), series, when)


def histogram(
    name: str, text: str, labels: Sequence[str] = (), *, series: str = "1", when: str = ""
) -> Declared:
    """Declares a histogram."""
    return Declared(name, Kind.HISTOGRAM, text, tuple(labels), series, when)


def declared_in(*modules: ModuleType) -> tuple[Declared, ...]:
    """All that these modules declare by a name of their own, in their order."""
    return tuple(
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Declared)
    )

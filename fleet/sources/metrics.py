"""What Prometheus reads of a source: how old its copy is and what its lists and watches do.

Figures are taken on the event loop; families can be made of them in any thread.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fleet.kube.listwatch_condition import Condition, Counters
from fleet.sources.contract import Source
from fleet.sources.kubernetes import KubeSource


@dataclass(frozen=True, slots=True)
class ResourceFigures:
    """All list+watches of one resource together.

    Attributes:
        synced: each has its first list.
        list_age_seconds: of the one whose last complete list is oldest.
        objects: how many are held.
    """

    synced: bool = True
    list_age_seconds: float = 0.0
    objects: int = 0

    def with_one(self, condition: Condition) -> "ResourceFigures":
        """These and one more."""
        return ResourceFigures(
            self.synced and condition.synced,
            max(self.list_age_seconds, condition.list_age_seconds),
            self.objects + condition.objects,
        )


@dataclass(frozen=True, slots=True)
class SourceFigures:
    """All numbers of one moment.

    Attributes:
        age_seconds: see `Source.age`.
        problems: how many there are.
        resources: of an API server, by resource as kubectl names it.
        totals: by resource, then by what was counted.
    """

    age_seconds: float = 0.0
    problems: int = 0
    resources: Mapping[str, ResourceFigures] = field(default_factory=dict)
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def source_figures(source: Source) -> SourceFigures:
    """The figures of now; to be called on the event loop."""
    resources: dict[str, ResourceFigures] = {}
    totals: dict[str, Mapping[str, int]] = {}
    if isinstance(source, KubeSource):
        for condition in source.conditions():
            known = resources.get(condition.resource, ResourceFigures())
            resources[condition.resource] = known.with_one(condition)
        totals = {resource: _numbers(counters) for resource, counters in source.counters().items()}
    return SourceFigures(source.age(), len(source.problems()), resources, totals)


def _numbers(counters: Counters) -> Mapping[str, int]:
    return {each.name: getattr(counters, each.name) for each in fields(counters)}


def families(figures: SourceFigures) -> Iterator[Metric]:
    """What Prometheus reads."""
    yield GaugeMetricFamily(
        "epp_fleet_source_age_seconds",
        "Since the copy of pools and pods was last known to be current.",
        value=figures.age_seconds,
    )
    yield GaugeMetricFamily(
        "epp_fleet_source_problems",
        "Failing reads, and objects that are not held as they are now.",
        value=figures.problems,
    )
    synced = _by_resource("synced", "1 if a first full list is here.")
    age = _by_resource("list_age_seconds", "Since the last complete list.")
    objects = _by_resource("objects", "Objects held.")
    for resource, each in figures.resources.items():
        synced.add_metric((resource,), int(each.synced))
        age.add_metric((resource,), each.list_age_seconds)
        objects.add_metric((resource,), each.objects)
    yield from (synced, age, objects)
    totals = CounterMetricFamily(
        "epp_fleet_source_operations",
        "Lists, watches, their events and their failures.",
        labels=("resource", "what"),
    )
    for resource, numbers in figures.totals.items():
        for what, count in numbers.items():
            totals.add_metric((resource, what), count)
    yield totals


def _by_resource(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"epp_fleet_source_{name}", text, labels=("resource",))


class SourceCollector(Collector):
    """Figures at the time of the scrape, for a process that renders on its loop."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        return families(source_figures(self._source))

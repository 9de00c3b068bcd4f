"""What Prometheus reads of a source: how old its copy is and what its lists and watches do.

Figures are taken on the event loop; families can be made of them in any thread.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from prometheus_client.metrics_core import Metric

from fleet.kube.call_errors import KINDS
from fleet.kube.listwatch_condition import Condition, Counters
from fleet.metrics import counter, gauge
from fleet.sources.contract import Source
from fleet.sources.kubernetes import KubeSource

_CLUSTER = "where pools come from an API server"
_RESOURCES = "9 resources at most"

AGE = gauge(
    "epp_fleet_source_age_seconds", "Since the copy of pools and pods was last known to be current."
)
PROBLEMS = gauge(
    "epp_fleet_source_problems", "Failing reads, and objects that are not held as they are now."
)
SYNCED = gauge(
    "epp_fleet_source_synced",
    "1 if a first full list is here.",
    ("resource",),
    series=_RESOURCES,
    when=_CLUSTER,
)
LIST_AGE = gauge(
    "epp_fleet_source_list_age_seconds",
    "Since the last complete list.",
    ("resource",),
    series=_RESOURCES,
    when=_CLUSTER,
)
OBJECTS = gauge(
    "epp_fleet_source_objects",
    "Objects held.",
    ("resource",),
    series=_RESOURCES,
    when=_CLUSTER,
)
OPERATIONS = counter(
    "epp_fleet_source_operations_total",
    "Lists, watches, their events and their failures.",
    ("resource", "what"),
    series=f"{_RESOURCES} x 7",
    when=_CLUSTER,
)
CALL_ERRORS = counter(
    "epp_fleet_kube_errors_total",
    "Calls of the API server that pools come from that were not answered or were refused; "
    "conflicts and what is not there are answers like others.",
    ("kind",),
    series="4 kinds",
)
NO_ERRORS: Mapping[str, int] = dict.fromkeys(KINDS, 0)


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
        call_errors: calls of the API server that failed, by kind.
    """

    age_seconds: float = 0.0
    problems: int = 0
    resources: Mapping[str, ResourceFigures] = field(default_factory=dict)
    totals: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    call_errors: Mapping[str, int] = field(default_factory=lambda: NO_ERRORS)


def source_figures(source: Source) -> SourceFigures:
    """The figures of now; to be called on the event loop."""
    resources: dict[str, ResourceFigures] = {}
    totals: dict[str, Mapping[str, int]] = {}
    call_errors = NO_ERRORS
    if isinstance(source, KubeSource):
        for condition in source.conditions():
            known = resources.get(condition.resource, ResourceFigures())
            resources[condition.resource] = known.with_one(condition)
        totals = {resource: _numbers(counters) for resource, counters in source.counters().items()}
        call_errors = {**NO_ERRORS, **source.call_errors()}
    return SourceFigures(source.age(), len(source.problems()), resources, totals, call_errors)


def _numbers(counters: Counters) -> Mapping[str, int]:
    return {each.name: getattr(counters, each.name) for each in fields(counters)}


def families(figures: SourceFigures) -> Iterator[Metric]:
    """What Prometheus reads."""
    held = figures.resources
    yield AGE.of(figures.age_seconds)
    yield PROBLEMS.of(figures.problems)
    yield SYNCED.by({resource: int(each.synced) for resource, each in held.items()})
    yield LIST_AGE.by({resource: each.list_age_seconds for resource, each in held.items()})
    yield OBJECTS.by({resource: each.objects for resource, each in held.items()})
    yield OPERATIONS.rows(
        ((resource, what), count)
        for resource, numbers in figures.totals.items()
        for what, count in numbers.items()
    )
    yield CALL_ERRORS.by(figures.call_errors)

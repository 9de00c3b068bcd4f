"""What a dashboard is made of, and how that looks in Grafana's JSON (schema 39, Grafana 11)."""

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

COLUMNS = 24
"""Of Grafana's grid."""

SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}


class Event(enum.StrEnum):
    """What has to happen to a fleet before a panel shows more than zeros."""

    DRAIN = "a worker is drained"
    WORKER_KILL = "a worker is killed"
    LONE_WORKER_KILL = "the only worker is killed"
    LEADER_KILL = "the leader is killed"
    STORE_RESTART = "the store is restarted empty"
    STRAY = "a stream reaches a worker that does not own its pool"
    BAD_REQUEST = "a request is refused"
    BAD_POOL = "a pool is refused"
    FOREIGN_ROUTE = "somebody else writes a route"
    DEAD_ENDPOINT = "a model server does not answer"


class Scope(enum.Enum):
    """Where there is something to show."""

    EVERYWHERE = enum.auto()
    CLUSTER = enum.auto()
    """On Kubernetes alone: slices, watches, certificates."""


@dataclass(frozen=True, slots=True)
class Query:
    """One target of a panel.

    Attributes:
        legend: Grafana's pattern for a series' name.
        instant: only the newest values.
        table: labels become columns.
    """

    expr: str
    legend: str = ""
    instant: bool = False
    table: bool = False

    def json(self, ref: str) -> Json:
        """As a target."""
        return {
            "refId": ref,
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": self.expr,
            "legendFormat": self.legend or "__auto",
            "instant": self.instant,
            "range": not self.instant,
            "format": "table" if self.table else "time_series",
        }


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; how its kind looks is in `panels`.

    Attributes:
        description: what it shows, what is normal, where to look next.
        unit: Grafana's id of the values' unit.
        nonzero_after: it may be all zeros, or empty, until this happened.
        scope: where it has data.
        steps: colours from a value on, lowest first; the first value is ignored.
    """

    title: str
    description: str
    kind: str
    unit: str
    queries: tuple[Query, ...]
    width: int
    height: int
    options: Json
    custom: Json = field(default_factory=dict)
    defaults: Json = field(default_factory=dict)
    overrides: tuple[Json, ...] = ()
    transformations: tuple[Json, ...] = ()
    steps: tuple[tuple[str, float], ...] = (("green", 0),)
    nonzero_after: Event | None = None
    scope: Scope = Scope.EVERYWHERE

    def json(self, number: int, x: int, y: int) -> Json:
        """At its place in the grid."""
        defaults: Json = {
            "unit": self.unit,
            "color": {"mode": "palette-classic" if self.kind == "timeseries" else "thresholds"},
            "thresholds": {"mode": "absolute", "steps": _steps(self.steps)},
            "custom": self.custom,
            **self.defaults,
        }
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.description,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": self.options,
            "transformations": list(self.transformations),
            "targets": [query.json(chr(65 + n)) for n, query in enumerate(self.queries)],
        }


def _steps(steps: Sequence[tuple[str, float]]) -> list[Json]:
    return [
        {"color": color, "value": value if number else None}
        for number, (color, value) in enumerate(steps)
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under a heading, left to right; a panel that does not fit begins a new line.

    Attributes:
        closed: shown only when somebody opens it.
    """

    title: str
    panels: tuple[Panel, ...]
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Variable:
    """What a reader chooses.

    Attributes:
        query: `label_values(...)`.
        all_value: what All stands for; "" = all values that there are.
    """

    name: str
    label: str
    query: str
    multi: bool = False
    include_all: bool = False
    all_value: str = ""

    def json(self) -> Json:
        """As a query variable."""
        chosen: Json = {}
        if self.include_all:
            chosen = {
                "text": ["All"] if self.multi else "All",
                "value": ["$__all"] if self.multi else "$__all",
            }
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"qryType": 1, "query": self.query, "refId": self.name},
            "definition": self.query,
            "refresh": 2,
            "sort": 1,
            "regex": "",
            "multi": self.multi,
            "includeAll": self.include_all,
            "allValue": self.all_value or None,
            "hide": 0,
            "current": chosen,
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """A variable with fixed values.

    Attributes:
        values: value by text, the default first.
    """

    name: str
    label: str
    values: Mapping[str, str]

    def json(self) -> Json:
        """As a custom variable."""
        options = [
            {"text": text, "value": value, "selected": not number}
            for number, (text, value) in enumerate(self.values.items())
        ]
        return {
            "name": self.name,
            "label": self.label,
            "type": "custom",
            "query": ", ".join(f"{text} : {value}" for text, value in self.values.items()),
            "options": options,
            "current": {key: options[0][key] for key in ("text", "value")},
            "multi": False,
            "includeAll": False,
            "hide": 0,
        }


@dataclass(frozen=True, slots=True)
class Text:
    """A variable that a reader types."""

    name: str
    label: str
    value: str

    def json(self) -> Json:
        """As a text box."""
        chosen = {"text": self.value, "value": self.value}
        return {
            "name": self.name,
            "label": self.label,
            "type": "textbox",
            "query": self.value,
            "options": [{**chosen, "selected": True}],
            "current": chosen,
            "hide": 0,
        }


_DATASOURCE: Json = {
    "name": "datasource",
    "label": "Data source",
    "type": "datasource",
    "query": "prometheus",
    "regex": "",
    "refresh": 1,
    "multi": False,
    "includeAll": False,
    "hide": 0,
    "current": {},
}


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One of them; `uid` is its address in Grafana, and its file's name behind `epp-fleet-`.

    Attributes:
        alerts: the alert whose section of the runbook a panel links to, by the panel's title.
    """

    uid: str
    title: str
    description: str
    variables: tuple[Variable | Choice | Text, ...]
    rows: tuple[Row, ...]
    alerts: Mapping[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """Its file's name."""
        return f"{self.uid.removeprefix('epp-fleet-')}.json"

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All, in order."""
        return tuple(panel for row in self.rows for panel in row.panels)

    def json(self, links: Sequence[Json]) -> Json:
        """The whole document.

        Args:
            links: on the top of it.
        """
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.description,
            "tags": ["epp-fleet"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timepicker": {},
            "timezone": "browser",
            "weekStart": "",
            "fiscalYearStartMonth": 0,
            "liveNow": False,
            "links": list(links),
            "annotations": {"list": []},
            "templating": {"list": [_DATASOURCE, *(each.json() for each in self.variables)]},
            "panels": _laid_out(self.rows, self.alerts),
        }


def _laid_out(rows: Sequence[Row], alerts: Mapping[str, str]) -> list[Json]:
    """Rows and panels with ids and places; the panels of a closed row are inside it."""
    found: list[Json] = []
    number = y = 0
    for row in rows:
        number += 1
        heading: Json = {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": row.closed,
            "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y},
            "panels": [],
        }
        found.append(heading)
        y += 1
        x = tallest = 0
        placed: list[Json] = []
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            placed.append(panel.json(number, x, y) | _links(alerts.get(panel.title, "")))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
        (heading["panels"] if row.closed else found).extend(placed)
    return found


def _links(alert: str) -> Json:
    """Of a panel, to the alert's section; none without an alert."""
    if not alert:
        return {}
    url = f"${{docs}}/runbook.md#{alert.lower()}"
    return {"links": [{"title": f"Runbook: {alert}", "url": url, "targetBlank": True}]}


def after(panel: Panel, event: Event) -> Panel:
    """The same, which shows more than zeros only when this happened."""
    return dataclasses.replace(panel, nonzero_after=event)


def on_cluster(panel: Panel) -> Panel:
    """The same, which has data on Kubernetes alone."""
    return dataclasses.replace(panel, scope=Scope.CLUSTER)

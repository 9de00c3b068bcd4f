"""The kinds of panels that the dashboards use, each with one look."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.dashboards.parts import Json, Panel, Query

Steps = Sequence[tuple[str, float]]

GOOD_BELOW_ONE: Steps = (("green", 0), ("red", 1))
"""Of what should not be: zero is green."""

_LEGEND: Json = {
    "displayMode": "table",
    "placement": "bottom",
    "showLegend": True,
    "calcs": ["lastNotNull", "mean", "max"],
}
_COLORS = (
    *("blue", "orange", "purple", "green", "red", "yellow"),
    *("super-light-blue", "dark-orange", "light-purple", "dark-green", "light-red", "dark-yellow"),
)
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
_OWNER_MAPPINGS: tuple[Json, ...] = tuple(
    {
        "type": "regex",
        "options": {
            "pattern": f"/.*[{_LETTERS[number :: len(_COLORS)]}]$/",
            "result": {"color": color, "index": number},
        },
    }
    for number, color in enumerate(_COLORS)
)
"""A worker's colour, by the last letter of its name: the same in every panel and at every time."""


def stat(
    title: str,
    description: str,
    unit: str,
    expr: str,
    *,
    steps: Steps = (("blue", 0),),
    none: str = "no data",
    decimals: int | None = None,
    width: int = 3,
) -> Panel:
    """One number."""
    defaults: Json = {"noValue": none}
    if decimals is not None:
        defaults["decimals"] = decimals
    return Panel(
        title=title,
        description=description,
        kind="stat",
        unit=unit,
        queries=(Query(expr, instant=True),),
        width=width,
        height=4,
        options=_stat_options("value"),
        defaults=defaults,
        steps=tuple(steps),
    )


def name(
    title: str, description: str, expr: str, label: str, *, none: str, width: int = 3
) -> Panel:
    """The value of a label, as words."""
    return Panel(
        title=title,
        description=description,
        kind="stat",
        unit="none",
        queries=(Query(expr, f"{{{{{label}}}}}", instant=True),),
        width=width,
        height=4,
        options=_stat_options("name"),
        defaults={"noValue": none},
        steps=(("blue", 0),),
    )


def _stat_options(text: str) -> Json:
    return {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "none",
        "textMode": text,
        "justifyMode": "auto",
        "orientation": "auto",
        "wideLayout": True,
    }


def lines(
    title: str,
    description: str,
    unit: str,
    queries: Mapping[str, str],
    *,
    stacked: bool = False,
    steps: Steps = (),
    width: int = 8,
    height: int = 9,
) -> Panel:
    """Series over time.

    Args:
        queries: expression by legend.
        steps: drawn as a line where the second begins.
    """
    custom: Json = {
        "drawStyle": "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 40 if stacked else 8,
        "showPoints": "auto",
        "spanNulls": False,
        "axisSoftMin": 0,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if steps else "off"},
    }
    return Panel(
        title=title,
        description=description,
        kind="timeseries",
        unit=unit,
        queries=tuple(Query(expr, legend) for legend, expr in queries.items()),
        width=width,
        height=height,
        options={"legend": _LEGEND, "tooltip": {"mode": "multi", "sort": "desc"}},
        custom=custom,
        steps=tuple(steps) or (("green", 0),),
    )


def bars(title: str, description: str, unit: str, expr: str, legend: str) -> Panel:
    """The newest values side by side."""
    return Panel(
        title=title,
        description=description,
        kind="bargauge",
        unit=unit,
        queries=(Query(expr, legend, instant=True),),
        width=8,
        height=9,
        options={
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "orientation": "horizontal",
            "displayMode": "basic",
            "valueMode": "color",
            "namePlacement": "auto",
            "showUnfilled": True,
            "sizing": "auto",
            "minVizHeight": 16,
            "minVizWidth": 8,
        },
        defaults={"min": 0},
        steps=(("blue", 0),),
    )


def owners(
    title: str, description: str, expr: str, column: str, *, links: Sequence[Json] = (), height: int
) -> Panel:
    """Who has what over time: a line for each value of `column`, with its `worker` as the state.

    Prometheus has no text values, so the worker is taken from its label: the series are put into
    one table, which is turned into a column for each line. A table has its rows series by series;
    a state timeline wants them by time.
    """
    return Panel(
        title=title,
        description=description,
        kind="state-timeline",
        unit="string",
        queries=(Query(expr, table=True),),
        width=24,
        height=height,
        options={
            "mergeValues": True,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.85,
            "perPage": 20,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "tooltip": {"mode": "single", "sort": "none"},
        },
        custom={"fillOpacity": 75, "lineWidth": 0, "spanNulls": False},
        defaults={"mappings": list(_OWNER_MAPPINGS), "links": list(links)},
        transformations=(
            {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": "Time"}]}},
            {
                "id": "groupingToMatrix",
                "options": {
                    "columnField": column,
                    "rowField": "Time",
                    "valueField": "worker",
                    "emptyValue": "null",
                },
            },
            {
                "id": "convertFieldType",
                "options": {
                    "fields": {},
                    "conversions": [{"targetField": f"Time\\{column}", "destinationType": "time"}],
                },
            },
        ),
    )


def states(
    title: str, description: str, expr: str, legend: str, texts: Mapping[int, tuple[str, str]]
) -> Panel:
    """A number over time that stands for a state.

    Args:
        texts: text and colour by number.
    """
    mapping: dict[str, Any] = {
        str(number): {"text": text, "color": color, "index": index}
        for index, (number, (text, color)) in enumerate(texts.items())
    }
    return Panel(
        title=title,
        description=description,
        kind="state-timeline",
        unit="none",
        queries=(Query(expr, legend),),
        width=24,
        height=6,
        options={
            "mergeValues": True,
            "showValue": "auto",
            "alignValue": "left",
            "rowHeight": 0.85,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False},
            "tooltip": {"mode": "single", "sort": "none"},
        },
        custom={"fillOpacity": 75, "lineWidth": 0, "spanNulls": False},
        defaults={"mappings": [{"type": "value", "options": mapping}]},
    )


def table(
    title: str,
    description: str,
    columns: Mapping[str, str],
    queries: Mapping[str, str],
    *,
    units: Mapping[str, str] | None = None,
    links: Mapping[str, Json] | None = None,
    hide: Sequence[str] = (),
    height: int = 12,
) -> Panel:
    """The newest values, one line for what has the same labels in all queries.

    Args:
        columns: heading by label, in order; the queries' headings come behind.
        queries: expression by heading, at least two (Grafana names a lone value otherwise).
        units: by heading.
        links: by heading.
        hide: headings of queries that are only there for their labels.
    """
    values = {f"Value #{chr(65 + n)}": heading for n, heading in enumerate(queries)}
    hidden = [field for field, heading in values.items() if heading in hide]
    order = [*columns, *values]
    overrides: list[Json] = []
    for heading in sorted({*(units or {}), *(links or {})}):
        properties: list[Json] = []
        if units and heading in units:
            properties.append({"id": "unit", "value": units[heading]})
        if links and heading in links:
            properties.append({"id": "links", "value": [links[heading]]})
        overrides.append(
            {"matcher": {"id": "byName", "options": heading}, "properties": properties}
        )
    return Panel(
        title=title,
        description=description,
        kind="table",
        unit="short",
        queries=tuple(Query(expr, instant=True, table=True) for expr in queries.values()),
        width=24,
        height=height,
        options={
            "cellHeight": "sm",
            "showHeader": True,
            "footer": {"show": False, "reducer": ["sum"], "fields": "", "countRows": False},
            "sortBy": [{"displayName": next(iter(columns.values())), "desc": False}],
        },
        custom={"align": "left", "cellOptions": {"type": "auto"}, "filterable": True},
        overrides=tuple(overrides),
        transformations=(
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True, **dict.fromkeys(hidden, True)},
                    "indexByName": {field: index for index, field in enumerate(order)},
                    "renameByName": {**columns, **values},
                },
            },
        ),
    )

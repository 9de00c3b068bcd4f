"""What Grafana does between a dashboard and its data source, as far as our dashboards need it.

Variables are put into queries as its Prometheus source does it, and results go through the
transformations that our panels use. There is no Grafana that tests could run; rules are from its
source (`prometheus/src/datasource.ts`, `grafana-data/src/transformations`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.prometheus_server import Series

Json = dict[str, Any]
Row = dict[str, Any]
ALL = "$__all"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a reader chose for a variable.

    Attributes:
        values: one or more; (ALL,) = All.
        options: all that there are.
    """

    values: tuple[str, ...]
    options: tuple[str, ...] = ()


def first_choice(variable: Json, options: Sequence[str]) -> Chosen:
    """What is chosen when the dashboard is opened: All if it is offered, else the first."""
    if variable["type"] == "query":
        values = (ALL,) if variable["includeAll"] else tuple(options[:1])
        return Chosen(values, tuple(options))
    return Chosen((variable["current"].get("value", ""),))


def _escaped(value: str) -> str:
    """As a part of a regular expression inside of PromQL quotes."""
    doubled = value.replace("\\", "\\\\\\\\")
    return re.sub(r"[$^*{}\[\]'+?.()|]", lambda found: "\\\\" + found.group(), doubled)


def _spelled(variable: Json, chosen: Chosen) -> str:
    if chosen.values == (ALL,):
        if variable.get("allValue"):
            return str(variable["allValue"])
        values = chosen.options
    else:
        values = chosen.values
    if not variable.get("multi") and not variable.get("includeAll"):
        return values[0].replace("\\", "\\\\").replace('"', '\\"') if values else ""
    spelled = [_escaped(each) for each in values]
    return spelled[0] if len(spelled) == 1 else f"({'|'.join(spelled)})"


def interpolated(
    text: str,
    variables: Sequence[Json],
    chosen: Mapping[str, Chosen],
    *,
    rate_interval: str,
    span: str,
) -> str:
    """A query with the variables' values in it.

    Args:
        variables: of the dashboard.
        chosen: by name; those that are missing are left as they are.
        rate_interval: what `$__rate_interval` is.
        span: what `$__range` is.

    Raises:
        KeyError: a variable that does not exist.
    """
    known = {variable["name"]: variable for variable in variables}

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name == "__rate_interval":
            return rate_interval
        if name == "__range":
            return span
        return _spelled(known[name], chosen[name])

    return re.sub(r"\$([a-zA-Z_]\w*)|\$\{(\w+)\}", value, text)


def rows(results: Sequence[Series], ref: str, *, alone: bool) -> list[Row]:
    """A result as a table, series by series: labels and value are columns."""
    value = "Value" if alone else f"Value #{ref}"
    return [
        {"Time": at, **series.labels, value: number}
        for series in results
        for at, number in series.points
    ]


def pivoted(table: Sequence[Row], transformations: Sequence[Json]) -> dict[str, list[Any]]:
    """`sortBy`, `groupingToMatrix` and `convertFieldType`: a column for each line of a timeline.

    The first column is the time.
    """
    order, pivot, convert = transformations
    assert [each["id"] for each in transformations] == [
        "sortBy",
        "groupingToMatrix",
        "convertFieldType",
    ]
    (key,) = (each["field"] for each in order["options"]["sort"])
    ordered = sorted(table, key=lambda row: row[key])
    options = pivot["options"]
    times = list(dict.fromkeys(row[options["rowField"]] for row in ordered))
    columns = list(dict.fromkeys(row[options["columnField"]] for row in ordered))
    cells = {
        (row[options["columnField"]], row[options["rowField"]]): row[options["valueField"]]
        for row in ordered
    }
    head = f"{options['rowField']}\\{options['columnField']}"
    (conversion,) = convert["options"]["conversions"]
    assert conversion["targetField"] == head
    return {head: times} | {
        column: [cells.get((column, time)) for time in times] for column in columns
    }


def merged(tables: Sequence[Sequence[Row]], transformations: Sequence[Json]) -> list[Row]:
    """`merge` and `organize`: lines with the same values in all common columns become one."""
    merge, organize = transformations
    assert (merge["id"], organize["id"]) == ("merge", "organize")
    full = [table for table in tables if table]
    common = set.intersection(*({name for row in table for name in row} for table in full))
    found: dict[tuple[Any, ...], list[Row]] = {}
    for table in full:
        for row in table:
            known = found.setdefault(tuple(row[name] for name in sorted(common)), [])
            fitting = [each for each in known if all(each.get(k, v) == v for k, v in row.items())]
            for each in fitting:
                each.update(row)
            if not fitting:
                known.append(dict(row))
    options = organize["options"]
    return [
        {
            options["renameByName"].get(name, name): value
            for name, value in row.items()
            if not options["excludeByName"].get(name)
        }
        for known in found.values()
        for row in known
    ]


def states(column: Sequence[Any]) -> list[Any]:
    """A line of a timeline, equal neighbours merged and gaps left out."""
    found: list[Any] = []
    for each in column:
        if each is not None and (not found or found[-1] != each):
            found.append(each)
    return found

"""The soak's rows as people and as programs read them. Pure."""

import json
from collections.abc import Iterator, Sequence

from tests.bench.rows import Row

_VERDICT = {True: "met", False: "MISSED", None: ""}


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """An aligned table with a head, one line a row."""
    cells = [("figure", "value", "unit", "target", "")]
    cells += [
        (row.name, f"{row.value:,.2f}", row.unit, _target(row), _VERDICT[row.met]) for row in rows
    ]
    name, value, unit, target, _ = (max(map(len, column)) for column in zip(*cells, strict=True))
    for a, b, c, d, e in cells:
        yield f"{a:<{name}}  {b:>{value}} {c:<{unit}}  {d:>{target}}  {e}".rstrip()


def document(rows: Sequence[Row]) -> str:
    """The same as JSON, format 1."""
    shown = [
        {"name": r.name, "value": r.value, "unit": r.unit, "target": r.target, "met": r.met}
        for r in rows
    ]
    return json.dumps({"format": 1, "rows": shown}, indent=2) + "\n"


def _target(row: Row) -> str:
    if row.target is None:
        return ""
    return f"{'>=' if row.at_least else '<='} {row.target:g}"

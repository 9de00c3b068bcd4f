"""The soak's table and its JSON form."""

import json

import pytest

from tests.bench.rows import Row
from tests.soak.table import document, lines, percentile

ROWS = [
    Row("pods, p50", 1234.5, "ms"),
    Row("a longer name", 0.5, "s", 1.0),
    Row("late", 2.0, "s", 1.0),
    Row("rate", 9.0, "1/s", 10.0, at_least=True),
]


def test_columns_are_aligned_and_a_missed_target_is_told() -> None:
    """Values end, and units begin, at the same column; no line ends with blanks."""
    assert list(lines(ROWS)) == [
        "figure            value unit  target",
        "pods, p50      1,234.50 ms",
        "a longer name      0.50 s       <= 1  met",
        "late               2.00 s       <= 1  MISSED",
        "rate               9.00 1/s    >= 10  MISSED",
    ]


def test_the_document_has_each_row() -> None:
    """Format 1; without a target nothing is met or missed."""
    found = json.loads(document(ROWS))
    assert found["format"] == 1
    assert found["rows"][0] == {
        "name": "pods, p50",
        "value": 1234.5,
        "unit": "ms",
        "target": None,
        "met": None,
    }
    assert [row["met"] for row in found["rows"]] == [None, True, False, False]


@pytest.mark.parametrize(("percent", "value"), [(50, 25.0), (99, 50.0), (100, 50.0), (1, 1.0)])
def test_percentiles_are_values_that_were_measured(percent: float, value: float) -> None:
    """Of 1 to 50: the 25th is not exceeded by half of them."""
    assert percentile([float(n) for n in range(50, 0, -1)], percent) == value

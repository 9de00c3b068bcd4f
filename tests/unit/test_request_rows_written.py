"""Rows of requests for models that somebody wrote down: as many as one pool may have, and all."""

from epp_worker.requests.rows import (
    ALL_WRITTEN_ROWS,
    DEFAULT_FAIRNESS,
    OTHER,
    OWN_ROWS,
    SHARED_ROWS,
    WRITTEN_ROWS,
    PoolRows,
    Row,
    Table,
)
from fleet.model import PoolRef


def asked(rows: PoolRows, number: int, priority: int = 0) -> Row:
    """A request for a model that the pool's owner wrote down."""
    name = f"m{number}"
    return rows.row(name, name, DEFAULT_FAIRNESS, priority, lambda _: True)


def test_a_tenant_of_many_pools_fills_no_page() -> None:
    """Who names a thousand models in each of many pools has the rows of a few; the others' pools
    have their own, and what goes gives back what it had."""
    table = Table()
    many = [PoolRef("tenant", f"p{number}") for number in range(12)]
    for ref in many:
        for number in range(WRITTEN_ROWS + 10):
            asked(table.of(ref), number)
    count = sum(len(rows.all()) for _, rows in table.pools())
    last = len(many) * (OWN_ROWS + 1)
    assert count <= SHARED_ROWS + ALL_WRITTEN_ROWS + last
    other = table.of(PoolRef("neighbour", "p"))
    assert [asked(other, number).key.model for number in range(OWN_ROWS)] == [
        "m0",
        "m1",
        "m2",
        "m3",
    ]
    assert asked(other, OWN_ROWS).key.model == OTHER
    table.keep([PoolRef("neighbour", "p")])
    assert (table.borrowed, table.written) == (0, 0)
    assert asked(other, OWN_ROWS + 1).key.model == f"m{OWN_ROWS + 1}"


def test_priorities_that_objectives_make_up_are_bounded_likewise() -> None:
    """Objectives are written by tenants, too."""
    table = Table()
    for number in range(8):
        rows = table.of(PoolRef("tenant", f"p{number}"))
        for priority in range(WRITTEN_ROWS):
            rows.row("made up", "made up", "flow", priority, lambda _: False)
    count = sum(len(rows.all()) for _, rows in table.pools())
    assert count <= SHARED_ROWS + ALL_WRITTEN_ROWS + 8 * (OWN_ROWS + 1)

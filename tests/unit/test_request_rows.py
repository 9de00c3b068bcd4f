"""How many rows requests may make, and what is counted where there are too many."""

from epp_worker.requests.rows import (
    DEFAULT_FAIRNESS,
    MAX_NAME,
    OTHER,
    OWN_ROWS,
    POOL_ROWS,
    SHARED_ROWS,
    WRITTEN_ROWS,
    PoolRows,
    RowKey,
    Table,
)
from fleet.model import PoolRef
from tests.picking import endpoint


def nobody(_: str) -> bool:
    """No model is written down."""
    return False


def named(
    rows: PoolRows, model: str, fairness: str = DEFAULT_FAIRNESS, priority: int = 0
) -> RowKey:
    """The row of a request for a model that nobody wrote down."""
    return rows.row(model, model, fairness, priority, nobody).key


def test_a_pools_made_up_models() -> None:
    """The first 100 have rows; the others are one, for each priority; the first ones stay."""
    rows = Table().of(PoolRef("ns", "a"))
    found = [named(rows, f"m-{number}") for number in range(1000)]
    assert [key.model for key in found[:POOL_ROWS]] == [f"m-{n}" for n in range(POOL_ROWS)]
    assert set(found[POOL_ROWS:]) == {RowKey(OTHER, OTHER, OTHER, 0)}
    assert named(rows, "new", priority=2) == RowKey(OTHER, OTHER, OTHER, 2)
    assert named(rows, "m-7") == found[7]
    assert len(rows.all()) == POOL_ROWS + 2


def test_pools_that_fill_up_leave_the_others_their_own_rows() -> None:
    """1000 rows are shared; beyond them each pool still has four."""
    table = Table()
    for pool in range(30):
        rows = table.of(PoolRef("bad", f"p-{pool}"))
        for number in range(2 * POOL_ROWS):
            named(rows, f"m-{number}")
    assert table.borrowed == SHARED_ROWS
    total = sum(len(rows.all()) for _, rows in table.pools())
    assert total <= SHARED_ROWS + 30 * (OWN_ROWS + 1)
    late = table.of(PoolRef("good", "late"))
    models = [named(late, f"m-{number}").model for number in range(OWN_ROWS + 1)]
    assert models == ["m-0", "m-1", "m-2", "m-3", OTHER]


def test_a_written_model_always_has_its_row() -> None:
    """Of its own flow, or with all other flows together; not with a target that a client named."""
    rows = Table().of(PoolRef("ns", "a"))
    for number in range(POOL_ROWS):
        named(rows, f"m-{number}")

    def written(model: str) -> bool:
        return model in ("llama", "llama-v2")

    assert rows.row("llama", "llama", DEFAULT_FAIRNESS, 0, written).key.model == "llama"
    assert rows.row("llama", "llama-v2", "x", 0, written).key == RowKey(
        "llama", "llama-v2", OTHER, 0
    )
    same = rows.row("llama", "llama-v2", "y", 0, written)
    assert same is rows.row("llama", "llama-v2", "z", 0, written)
    assert rows.row("llama", "made-up", DEFAULT_FAIRNESS, 0, written).key.model == OTHER


def test_nothing_grows_for_ever() -> None:
    """Priorities and written models in any number end in one row, too."""
    rows = Table().of(PoolRef("ns", "a"))
    for number in range(3 * WRITTEN_ROWS):
        rows.row(f"m-{number}", f"m-{number}", f"f-{number}", number, lambda m: m.endswith("0"))
    assert len(rows.all()) <= WRITTEN_ROWS + 1
    assert named(rows, "new", priority=-5) == RowKey(OTHER, OTHER, OTHER, OTHER)


def test_a_long_flow_id_is_no_label() -> None:
    """Headers may have any length."""
    rows = Table().of(PoolRef("ns", "a"))
    assert named(rows, "m", "f" * MAX_NAME).fairness == "f" * MAX_NAME
    assert named(rows, "m", "f" * (MAX_NAME + 1)).fairness == OTHER
    assert named(rows, "m", "g" * (MAX_NAME + 1)).fairness == OTHER
    assert len(rows.all()) == 2


def test_a_long_model_is_a_label_only_where_somebody_wrote_it_down() -> None:
    """A name may have 1024 characters; on a page it is there a hundred times."""
    rows = Table().of(PoolRef("ns", "a"))
    long = "m" * (MAX_NAME + 1)
    assert named(rows, "m" * MAX_NAME).model == "m" * MAX_NAME
    assert named(rows, long).model == OTHER
    assert rows.row("m", long, DEFAULT_FAIRNESS, 0, nobody).key.target == OTHER
    assert rows.row(long, long, DEFAULT_FAIRNESS, 0, long.__eq__).key.model == long


def test_picks_of_an_endpoint_by_model_are_bounded() -> None:
    """Seven short models beside `other`, which was there first; all others are that one."""
    state = endpoint(0)
    state.picked_for("m" * 129)
    for number in range(50):
        state.picked_for(f"m-{number % 25}")
    assert len(state.picks) == 8
    assert sum(state.picks.values()) == 51
    assert state.picks[OTHER] == 51 - 2 * 7


def test_a_pool_that_goes_gives_its_rows_back() -> None:
    """What it borrowed is there for others."""
    table = Table()
    gone, kept = PoolRef("ns", "gone"), PoolRef("ns", "kept")
    for ref in (gone, kept):
        for number in range(POOL_ROWS):
            named(table.of(ref), f"m-{number}")
    assert table.borrowed == 2 * (POOL_ROWS - OWN_ROWS)
    table.keep({kept})
    assert [ref for ref, _ in table.pools()] == [kept]
    assert table.borrowed == POOL_ROWS - OWN_ROWS
    assert table.of(gone).all() == []

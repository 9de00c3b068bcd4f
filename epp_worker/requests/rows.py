"""Plain counts of requests, by pool and by what the request says of itself.

The names in a request are the client's: whoever makes them up must not fill the worker's memory,
nor the tables of other pools. Each pool has a few rows of its own; further ones it takes from what
all pools share, up to a bound of its own; what is too much is counted under `other`. Models that
the pool's annotation or a rewrite names have their row, up to a bound of all pools.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from epp_worker.requests.measures import MEANINGS, PICK_SECONDS
from epp_worker.scheduling.prefix.figures import Histogram
from fleet.model.identity import PoolRef

OWN_ROWS: Final = 4
"""Rows that a pool has whatever others do."""
SHARED_ROWS: Final = 1000
"""Rows beyond those, of all pools together: as many as the router has names of models."""
POOL_ROWS: Final = 100
"""Rows that a pool may have in all, but for those of models that somebody wrote down."""
WRITTEN_ROWS: Final = 1000
"""Rows that a pool may have with those."""
ALL_WRITTEN_ROWS: Final = 4000
"""Of all pools together: each is some 40 kB on the page, and who writes one name may write many."""
OTHER: Final = "other"
DEFAULT_FAIRNESS: Final = "default-flow"
"""Of a request that names no flow."""
MAX_NAME: Final = 128
"""A longer id of a flow counts as `other`, and so does a longer model that nobody wrote down."""

Names = Callable[[str], bool]
"""Whether somebody wrote a model's name down."""


class RowKey(NamedTuple):
    """The labels that the router has on every metric of requests.

    Attributes:
        target: the model that is asked for; `model`, unless it was rewritten.
    """

    model: str
    target: str
    fairness: str
    priority: int | str


class Row:
    """The requests of one pool that say the same of themselves.

    Attributes:
        picked: requests for which an endpoint was picked.
        running: of those, the ones that are not over.
        unplaced: requests for which no endpoint could be picked.
        errors: by the router's name of the error.
        measures: by the index in `MEANINGS`; None = nothing was measured.
        text: the labels as they stand on the page; "" = not made yet.
    """

    __slots__ = ("errors", "key", "measures", "picked", "running", "text", "unplaced")

    def __init__(self, key: RowKey) -> None:
        self.key = key
        self.picked = 0
        self.running = 0
        self.unplaced = 0
        self.errors: dict[str, int] = {}
        self.measures: list[Histogram | None] = [None] * len(MEANINGS)
        self.text = ""

    def measured(self, measure: int, value: float) -> None:
        """One more; as `Histogram.observe`, without another call."""
        histogram = self.measures[measure]
        if histogram is None:
            histogram = self.measures[measure] = Histogram(MEANINGS[measure].bounds)
        histogram.counts[bisect_left(histogram.bounds, value)] += 1
        histogram.total += value

    def failed(self, error: str) -> None:
        """One more error of this name."""
        self.errors[error] = self.errors.get(error, 0) + 1


class PoolRows:
    """All rows of one pool.

    Attributes:
        picks: how long picking an endpoint took, in seconds.
        rewrites: requests by the rewrite's name, the model and what it was rewritten to.
    """

    __slots__ = ("_by_key", "_table", "borrowed", "picks", "rewrites", "written")

    def __init__(self, table: "Table") -> None:
        self._table = table
        self._by_key: dict[tuple[str, str, str, int | str], Row] = {}
        self.borrowed = 0
        self.written = 0
        self.picks = Histogram(PICK_SECONDS)
        self.rewrites: dict[tuple[str, str, str], int] = {}

    def all(self) -> list[Row]:
        """The rows of this moment."""
        return list(self._by_key.values())

    def row(self, model: str, target: str, fairness: str, priority: int, names: Names) -> Row:
        """Where a request with these labels counts."""
        row = self._by_key.get((model, target, fairness, priority))
        return row or self._new(RowKey(model, target, fairness, priority), names)

    def _new(self, key: RowKey, names: Names) -> Row:
        if len(key.fairness) > MAX_NAME:
            key = key._replace(fairness=OTHER)
            if key in self._by_key:
                return self._by_key[key]
        short = len(key.model) <= MAX_NAME and len(key.target) <= MAX_NAME
        if short and self._room():
            return self._add(key)
        if names(key.model) and (key.target == key.model or names(key.target)):
            if key.fairness != DEFAULT_FAIRNESS:
                key = key._replace(fairness=OTHER)
            if key in self._by_key or self._room_for_written():
                return self._add(key)
        key = RowKey(OTHER, OTHER, OTHER, key.priority)
        if key in self._by_key or self._room_for_written():
            return self._add(key)
        return self._add(RowKey(OTHER, OTHER, OTHER, OTHER))

    def _room(self) -> bool:
        """Whether one more row may be made; takes it from the shared ones if need be."""
        if len(self._by_key) < OWN_ROWS:
            return True
        if len(self._by_key) >= POOL_ROWS or self._table.borrowed >= SHARED_ROWS:
            return False
        self.borrowed += 1
        self._table.borrowed += 1
        return True

    def _room_for_written(self) -> bool:
        """Likewise, of what somebody wrote down: a model, or a priority."""
        if len(self._by_key) >= WRITTEN_ROWS or self._table.written >= ALL_WRITTEN_ROWS:
            return False
        self.written += 1
        self._table.written += 1
        return True

    def _add(self, key: RowKey) -> Row:
        return self._by_key.setdefault(key, Row(key))


class Table:
    """The rows of all pools of a worker.

    Attributes:
        borrowed: of the shared rows, those that are taken.
        written: likewise of `ALL_WRITTEN_ROWS`.
    """

    def __init__(self) -> None:
        self._pools: dict[PoolRef, PoolRows] = {}
        self.borrowed = 0
        self.written = 0

    def __len__(self) -> int:
        return len(self._pools)

    def of(self, ref: PoolRef) -> PoolRows:
        """The rows of a pool, made now if it has none."""
        rows = self._pools.get(ref)
        if rows is None:
            rows = self._pools[ref] = PoolRows(self)
        return rows

    def pools(self) -> list[tuple[PoolRef, PoolRows]]:
        """All pools that have rows."""
        return list(self._pools.items())

    def keep(self, refs: Collection[PoolRef]) -> None:
        """Forget the pools that are not among these."""
        for ref in self._pools.keys() - set(refs):
            gone = self._pools.pop(ref)
            self.borrowed -= gone.borrowed
            self.written -= gone.written

"""Placement of 10,000 route groups on 100 workers: time, balance, movement."""

from collections import Counter
from collections.abc import Iterator

from fleet.model import GroupKey, Reason
from fleet.placement import Candidate, Current, Plan, place
from fleet.ring import Ring
from fleet.settings import PlacementSettings
from tests.bench.rows import Row, median_ms

SETTINGS = PlacementSettings()
LOADS = {GroupKey(f"ns-{i % 50}", f"epp-{i}", 9002): 1.0 for i in range(10_000)}
NAMES = tuple(f"worker-{i}" for i in range(100))


def _place(names: tuple[str, ...], before: Plan | None, ring: Ring | None = None) -> Plan:
    current = {}
    if before is not None:
        current = {g: Current(d.owner, d.standby) for g, d in before.decisions.items()}
    return _place_from(names, current, before.cap if before else None, ring)


def _place_from(
    names: tuple[str, ...],
    current: dict[GroupKey, Current],
    cap: float | None,
    ring: Ring | None,
) -> Plan:
    candidates = [Candidate(name) for name in names]
    return place(candidates, LOADS, current, cap=cap, settings=SETTINGS, ring=ring)


def _change(what: str, names: tuple[str, ...], before: Plan) -> Iterator[Row]:
    """Time, balance and movement of one change; the time has a new ring in it."""
    current = {g: Current(d.owner, d.standby) for g, d in before.decisions.items()}
    ring = Ring.build(before.ring)
    milliseconds = median_ms(lambda: _place_from(names, current, before.cap, ring))
    plan = _place_from(names, current, before.cap, ring)
    owned = Counter(d.owner for d in plan.decisions.values())
    moved = sum(d.reason is not Reason.KEPT for d in plan.decisions.values())
    yield Row(f"placement: {what}", milliseconds, "ms", 40)
    yield Row(f"placement: moved on {what}", 100 * moved / len(LOADS), "%", 1.10)
    fullest = max(owned.values()) * len(names) / len(LOADS)
    yield Row(f"placement: max/mean after {what}", fullest, "", 1.10)


def rows() -> Iterator[Row]:
    """All figures of this room."""
    cold = _place(NAMES, None)
    owned = Counter(d.owner for d in cold.decisions.values())
    yield Row("placement: ring build", median_ms(lambda: Ring.build(cold.ring)), "ms")
    yield Row("placement: cold", median_ms(lambda: _place(NAMES, None)), "ms", 150)
    fullest = max(owned.values()) * len(NAMES) / len(LOADS)
    yield Row("placement: max/mean cold", fullest, "", 1.10)
    yield from _change("one leave", NAMES[1:], cold)
    yield from _change("one join", (*NAMES, "newcomer"), cold)

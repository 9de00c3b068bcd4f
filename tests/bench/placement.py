"""Placement of 10,000 route groups on 100 workers: time, balance, movement."""

from collections import Counter
from collections.abc import Iterator

from fleet.model import GroupKey, Reason, RingSpec
from fleet.placement import Candidate, Current, Plan, place
from fleet.ring import Ring, points_of
from fleet.settings import PlacementSettings
from tests.bench.rows import Row, median_ms
from tests.placed_fleet import PlacedFleet

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


def _new_ring(spec: RingSpec) -> Ring:
    """As if none of its workers had been seen before."""
    points_of.cache_clear()
    return Ring.build(spec)


def _cold() -> Plan:
    points_of.cache_clear()
    return _place(NAMES, None)


def _roll_out() -> float:
    """Moves of a group on average while 10 workers of 1,000 groups are replaced, new ones first."""
    fleet = PlacedFleet(1000)
    for number in range(10):
        fleet.add(f"old-{number}")
    fleet.settle()
    for number in range(10):
        fleet.add(f"new-{number}", version="2")
        fleet.look(3.0)
        fleet.settle()
        fleet.draining.add(f"old-{number}")
        fleet.settle()
        fleet.die(f"old-{number}")
        fleet.settle()
    return fleet.moves.total() / 1000


def rows() -> Iterator[Row]:
    """All figures of this room."""
    cold = _place(NAMES, None)
    owned = Counter(d.owner for d in cold.decisions.values())
    yield Row("placement: ring of new workers", median_ms(lambda: _new_ring(cold.ring)), "ms")
    yield Row("placement: cold", median_ms(_cold), "ms", 150)
    fullest = max(owned.values()) * len(NAMES) / len(LOADS)
    yield Row("placement: max/mean cold", fullest, "", 1.10)
    yield from _change("one leave", NAMES[1:], cold)
    yield from _change("one join", (*NAMES, "newcomer"), cold)
    yield Row("placement: moves a group in a roll-out", _roll_out(), "", 1.3)

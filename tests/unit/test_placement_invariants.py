"""What holds of every placement, whatever the facts."""

import random
from math import fsum

from hypothesis import given
from hypothesis import strategies as st

from fleet.model import GroupKey, Reason
from fleet.placement import Candidate, Current, Plan, place
from fleet.settings import PlacementSettings

SETTINGS = PlacementSettings(vnodes=8)
IDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])

_candidates = st.lists(
    st.builds(
        Candidate,
        id=IDS,
        weight=st.integers(1, 3),
        zone=st.sampled_from(["", "z1", "z2"]),
        node=st.sampled_from(["", "n1", "n2", "n3"]),
        accepts=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda candidate: candidate.id,
)
_groups = st.builds(
    GroupKey, st.just("ns"), st.sampled_from([f"epp-{i}" for i in range(20)]), st.just(1)
)
_loads = st.dictionaries(_groups, st.floats(0, 50) | st.just(1.0), max_size=20)
_current = st.dictionaries(_groups, st.builds(Current, st.none() | IDS, st.none() | IDS))
_caps = st.none() | st.floats(0, 100)


def _again(candidates: list[Candidate], loads: dict[GroupKey, float], plan: Plan) -> Plan:
    current = {g: Current(d.owner, d.standby) for g, d in plan.decisions.items()}
    return place(candidates, loads, current, cap=plan.cap, settings=SETTINGS)


@given(_candidates, _loads, _current, _caps)
def test_every_group_is_placed_and_every_move_has_its_reason(
    candidates: list[Candidate],
    loads: dict[GroupKey, float],
    current: dict[GroupKey, Current],
    cap: float | None,
) -> None:
    """Owners accept if anybody does; stand-bys live and differ; reasons fit what happened."""
    plan = place(candidates, loads, current, cap=cap, settings=SETTINGS)
    live = {worker.id for worker in candidates}
    accepting = {worker.id for worker in candidates if worker.accepts} or live
    assert plan.decisions.keys() == loads.keys()
    for group, decision in plan.decisions.items():
        was = current.get(group, Current(None, None)).owner
        assert (decision.owner in accepting) if live else (decision.owner is None)
        assert decision.standby != decision.owner or decision.owner is None
        assert (decision.standby in live) if len(live) > 1 else (decision.standby is None)
        if was is None:
            assert decision.reason is Reason.INITIAL
        elif was not in live:
            assert decision.reason is Reason.OWNER_DEAD
        elif was not in accepting:
            assert decision.reason is Reason.DRAIN
        elif was == decision.owner:
            assert decision.reason is Reason.KEPT
        else:
            assert decision.reason in (Reason.JOIN, Reason.BALANCE)


@given(_candidates, _loads, _current, _caps)
def test_a_plan_is_stable(
    candidates: list[Candidate],
    loads: dict[GroupKey, float],
    current: dict[GroupKey, Current],
    cap: float | None,
) -> None:
    """Placing again with the same facts keeps every owner and every stand-by."""
    plan = place(candidates, loads, current, cap=cap, settings=SETTINGS)
    again = _again(candidates, loads, plan)
    for group, decision in again.decisions.items():
        before = plan.decisions[group]
        assert (decision.owner, decision.standby) == (before.owner, before.standby)
    assert again.cap == plan.cap


@given(_candidates, _loads, _current, _caps, st.randoms(use_true_random=False))
def test_the_order_of_the_facts_does_not_matter(
    candidates: list[Candidate],
    loads: dict[GroupKey, float],
    current: dict[GroupKey, Current],
    cap: float | None,
    rng: random.Random,
) -> None:
    """Two leaders that read the same facts in different orders decide the same."""
    plan = place(candidates, loads, current, cap=cap, settings=SETTINGS)
    mixed = list(loads.items())
    rng.shuffle(mixed)
    turned = rng.sample(candidates, len(candidates))
    other = place(turned, dict(mixed), current, cap=cap, settings=SETTINGS)
    assert other == plan


@given(_candidates, _loads, _current)
def test_nobody_is_needlessly_over_the_cap(
    candidates: list[Candidate],
    loads: dict[GroupKey, float],
    current: dict[GroupKey, Current],
) -> None:
    """No group of a worker over its cap would fit under the cap of another worker."""
    plan = place(candidates, loads, current, cap=None, settings=SETTINGS)
    workers = [w for w in candidates if w.accepts] or candidates
    carried = {
        w.id: fsum(loads[g] for g, d in plan.decisions.items() if d.owner == w.id) for w in workers
    }
    for giver in workers:
        if carried[giver.id] <= plan.cap * giver.weight * (1 + 1e-6):
            continue
        for group, decision in plan.decisions.items():
            if decision.owner != giver.id or loads[group] <= 1e-6:
                continue
            for taker in workers:
                room = plan.cap * taker.weight * (1 - 1e-6) - carried[taker.id]
                assert taker is giver or loads[group] > room

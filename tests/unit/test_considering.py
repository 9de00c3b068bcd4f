"""Why each worker has a group or has it not: one rule a case, against a ring of three or four."""

from collections.abc import Sequence

import pytest

from fleet.model import GroupKey, Reason, RingSpec
from fleet.model.pins import Pin
from fleet.placement import Candidate, place
from fleet.placement.considering import (
    MOST,
    Asked,
    Considered,
    Contender,
    Rules,
    Verdict,
    loads_by_worker,
)
from fleet.ring import HASH, Ring
from fleet.settings.model import PlacementSettings

GROUP = GroupKey("acme", "red-epp", 9002)


def _ring(names: Sequence[str]) -> Ring:
    return Ring.build(RingSpec(HASH, 160, dict.fromkeys(names, 1)))


ORDER = tuple(_ring(["w0", "w1", "w2", "w3"]).walk(GROUP))
FIRST, SECOND, THIRD, FOURTH = ORDER


def _contender(name: str, load: float | None = 2.0, **more: object) -> Contender:
    where = {key: more.pop(key) for key in ("zone", "node", "accepts", "preferred") if key in more}
    return Contender(Candidate(name, **where), load=load, **more)  # type: ignore[arg-type]


def _asked(**more: object) -> Asked:
    facts = {"load": 1.0, "owner": FIRST, "standby": SECOND, **more}
    return Asked(GROUP, **facts)  # type: ignore[arg-type]


def consider(
    *contenders: Contender, asked: Asked | None = None, cap: float | None = 4.0
) -> dict[str, Considered]:
    """By worker; whoever is not given is plain. The mean is 2, so the ring's order holds up to
    (2 + cap) / 2."""
    given = {each.candidate.id: each for each in contenders}
    everybody = [given.get(name) or _contender(name) for name in ORDER]
    rules = Rules(everybody, cap=cap, loads=None if cap is None else [1.0] * 8)
    found = rules.consider(asked or _asked(), _ring(ORDER))
    assert [each.worker for each in found] == list(ORDER)
    assert [each.order for each in found] == [1, 2, 3, 4]
    return {each.worker: each for each in found}


def test_owner_standby_and_the_rest_of_a_calm_fleet() -> None:
    """The owner by its reason, the stand-by, and those that nothing speaks for."""
    found = consider(asked=_asked(reason=Reason.OWNER_DEAD))
    assert found[FIRST].verdict is Verdict.OWNER
    assert found[FIRST].why.startswith("took it over when its owner died; keeps it")
    assert found[SECOND].verdict is Verdict.STANDBY
    assert found[SECOND].why == f"is kept warm to take over from {FIRST}"
    assert found[THIRD].verdict is found[FOURTH].verdict is Verdict.STICKY
    assert (found[THIRD].load, found[THIRD].cap) == (2.0, 4.0)


@pytest.mark.parametrize(
    ("contender", "asked", "verdict", "says"),
    [
        ({"dead": "refused: 0.1 s"}, {}, Verdict.DEAD, "dead: refused: 0.1 s"),
        ({"joined": False}, {}, Verdict.JOINING, "no map names it"),
        ({"accepts": False}, {}, Verdict.DRAINING, "given nothing while others live"),
        ({"zone": "b"}, {"pin": Pin.parse("zone=a")}, Verdict.PIN, "does not meet the pin zone=a"),
        ({}, {"quarantined": True}, Verdict.QUARANTINE, "stays on one worker"),
        ({"tainted": True}, {}, Verdict.QUARANTINE, "owns a quarantined pool"),
        ({}, {"rolling": True}, Verdict.OLDER_VERSION, "not of the version"),
        ({"preferred": True}, {"rolling": True}, Verdict.STICKY, "stays with a worker"),
        ({"load": 3.5}, {}, Verdict.OVER_CAP, "would carry 4.5 with it, over its cap of 4.0"),
        ({"load": 2.5}, {}, Verdict.FULL, "holds up to 3.0"),
        ({"load": 2.0}, {}, Verdict.STICKY, "has room"),
        ({}, {"owner": None, "standby": None}, Verdict.FREE, "could take it"),
        ({}, {"former": (THIRD,)}, Verdict.FORMER, "until no stream strays"),
        ({}, {"gainer": THIRD}, Verdict.GAINER, "as soon as it is ready"),
    ],
)
def test_the_first_rule_that_holds(
    contender: dict[str, object], asked: dict[str, object], verdict: Verdict, says: str
) -> None:
    """Each rule says its own word."""
    found = consider(_contender(THIRD, **contender), asked=_asked(**asked))[THIRD]  # type: ignore[arg-type]
    assert found.verdict is verdict
    assert says in found.why


@pytest.mark.parametrize(
    ("owner", "asked", "says"),
    [
        ({"accepts": False}, {}, "hands it over: it drains"),
        ({"load": 4.5}, {}, "is over its cap"),
        ({}, {"gainer": THIRD}, "serves it until the move is done"),
        ({}, {"quarantined": True}, "without a stand-by"),
    ],
)
def test_what_else_is_said_of_the_owner(
    owner: dict[str, object], asked: dict[str, object], says: str
) -> None:
    """It may be on its way out, or too full."""
    found = consider(_contender(FIRST, **owner), asked=_asked(**asked))[FIRST]  # type: ignore[arg-type]
    assert found.verdict is Verdict.OWNER
    assert says in found.why


def test_spread_says_who_stands_by() -> None:
    """The next in the ring's order is in the owner's zone, so the one after it stands by."""
    found = consider(
        _contender(FIRST, zone="a", node="n1"),
        _contender(SECOND, zone="a", node="n2"),
        _contender(THIRD, zone="b", node="n3"),
        _contender(FOURTH, zone="a", node="n1"),
        asked=_asked(standby=THIRD),
    )
    assert found[THIRD].why == f"is kept warm to take over from {FIRST}; another zone"
    assert found[SECOND].why.endswith("; no stand-by: another node, the same zone as the owner")
    assert found[FOURTH].why.endswith("; no stand-by: the same node as the owner")


def test_without_loads_nothing_is_said_of_caps() -> None:
    """A follower: what it cannot know is null."""
    found = consider(*(_contender(name, load=None) for name in ORDER), cap=None)
    assert {(each.load, each.cap) for each in found.values()} == {(None, None)}
    assert found[THIRD].verdict is Verdict.STICKY
    assert "room" not in found[THIRD].why


def test_a_quarantined_pool_everywhere_keeps_nobody_out() -> None:
    """Then somebody of them must take what is left."""
    everybody = [_contender(name, tainted=True) for name in ORDER]
    assert consider(*everybody)[THIRD].verdict is Verdict.STICKY


def test_of_a_large_fleet_the_first_and_those_named() -> None:
    """The last in the ring's order stands by: it is said, the others are left out."""
    names = [f"w{n}" for n in range(40)]
    ring = _ring(names)
    order = list(ring.walk(GROUP))
    rules = Rules([_contender(name) for name in names], cap=4.0, loads=[1.0] * 80)
    found = rules.consider(_asked(owner=order[20], standby=order[-1]), ring)
    assert [each.worker for each in found] == [*order[:MOST], order[20], order[-1]]
    assert [each.order for each in found][-2:] == [21, 40]


def test_weights_count() -> None:
    """A worker of weight 3 may carry three caps."""
    heavy = Contender(Candidate(THIRD, weight=3), load=6.5)
    found = consider(heavy)[THIRD]
    assert (found.verdict, found.cap) == (Verdict.STICKY, 12.0)


def test_what_workers_carry() -> None:
    """One for each group and its streams per second."""
    one, two, three = (GroupKey("a", name, 1) for name in "xyz")
    assert loads_by_worker({one: "w", two: "w", three: None}, {two: 1.5}) == {"w": 3.5}


def test_it_agrees_with_the_placement() -> None:
    """Whoever the placement gave one of 60 orphans could take it, and nobody that it left out."""
    ring = _ring(ORDER)
    workers = [Candidate(name, accepts=name != "w2") for name in ORDER]
    groups = [GroupKey("ns", f"p{n}", 1) for n in range(60)]
    loads = dict.fromkeys(groups, 1.0)
    plan = place(workers, loads, {}, cap=None, settings=PlacementSettings())
    owners = {group: decision.owner for group, decision in plan.decisions.items()}
    carried = loads_by_worker(owners, {})
    for group, owner in owners.items():
        without = {name: carried.get(name, 0.0) - (name == owner) for name in ORDER}
        contenders = [Contender(each, load=without[each.id]) for each in workers]
        rules = Rules(contenders, cap=plan.cap, loads=[1.0] * 60)
        found = rules.consider(Asked(group, 1.0, None), ring)
        verdicts = {each.worker: each.verdict for each in found}
        assert verdicts["w2"] is Verdict.DRAINING
        assert verdicts[owner or ""] in (Verdict.FREE, Verdict.FULL)

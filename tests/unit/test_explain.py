"""One pool explained: what a leader knows of it, what a follower knows, and what nobody knows."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.contenders import Weighed
from coordinator.estate import Estate
from coordinator.explain import Explained, Explainer
from coordinator.ownership import Claimed, NotOurs
from coordinator.routes.contract import Located, Route
from coordinator.routes.eds import EdsRoutes
from coordinator.services import Failure
from coordinator.web.explaining import LEADER_KNOWS, explain_document
from fleet.model import (
    Addresses,
    EpochVersion,
    GroupKey,
    LeaderInfo,
    Member,
    MemberState,
    MemberStatus,
    Phase,
    Placement,
    PoolId,
    Reason,
    RingSpec,
    ShardMap,
    Signal,
)
from fleet.model.pins import PIN
from fleet.picking.choice import PROFILE
from fleet.ring import Ring
from fleet.settings.model import OwnershipSettings, RouteSettings, Settings
from fleet.sources.contract import Problem
from tests.contract.election_worlds import LoopClock
from tests.memory_kube import MemoryApiServer, MemoryKube
from tests.memory_routes import MemoryRoutes
from tests.memory_source import MemorySource
from tests.ownership_facts import FLEET, OURS, THEIRS, group, key, pool, service

LEADER = LeaderInfo("coordinator-0", "10.0.0.1:8080", "10.0.0.1:8081")
WORKERS = ("w0", "w1", "w2")


class LocatedRoutes(MemoryRoutes):
    """Routes that say where they are."""

    def where(self, group: GroupKey) -> str:
        return f"file {group.service}"


def statuses() -> list[MemberStatus]:
    return [
        MemberStatus(
            Member(name, "i", Addresses(f"{name}:1", f"{name}:2", f"{name}:3", f"{name}:4")),
            MemberState.DEAD if name == "w2" else MemberState.ALIVE,
            None,
            0,
            0,
        )
        for name in WORKERS
    ]


def a_map(*placed: tuple[GroupKey, PoolId]) -> ShardMap:
    placements = {
        key: Placement(key, (pool_id,), Phase.OWNED, ("w0",), "w1", Reason.INITIAL, 60.0)
        for key, pool_id in placed
    }
    return ShardMap(
        FLEET, EpochVersion(3, 7), 0.0, LEADER, placements, addresses={"w0": "10.0.0.7:9002"}
    )


class World:
    """One coordinator's knowledge of a cluster's pools."""

    def __init__(self, source: MemorySource) -> None:
        self.source = source
        settings = Settings(fleet=FLEET, ownership=OwnershipSettings(controller_name=OURS))
        clock = LoopClock()
        self.estate = Estate(
            settings,
            source,
            MemoryKube(MemoryApiServer()),
            me="coordinator-0",
            leading=lambda: True,
            shard_map=lambda: None,
            clock=clock,
            rng=random.Random(1),
        )
        self.explainer = Explainer(self.estate, source, LocatedRoutes(clock), vnodes=160)
        self.map: ShardMap | None = None

    def explain(
        self, name: str = "a", written: Callable[[GroupKey], Route | None] | None = None
    ) -> Explained | None:
        return self.explainer.explain(
            pool(name).ref, shard_map=self.map, members=statuses(), written=written
        )


async def world(*objects: object) -> World:
    made = World(MemorySource(*objects))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    return made


async def test_what_a_leader_says_of_a_served_pool() -> None:
    """Claim, Service, placement, candidates in the ring's order, and what it wrote."""
    here = await world(pool(), service())
    here.map = a_map((group(), pool().id))
    route = Route(group(), ("10.0.0.7:9002",), EpochVersion(3, 5))
    found = here.explain(written=lambda _: route)
    assert found is not None
    assert isinstance(found.decision, Claimed)
    (only,) = found.groups
    assert only.placement is not None
    assert only.placement.owners == ("w0",)
    assert only.route is not None
    assert only.route.where == "file epp"
    assert only.route.addresses == ("10.0.0.7:9002",)
    assert only.route.version == EpochVersion(3, 5)
    ring = Ring.build(RingSpec("xxh3", 160, {"w0": 1, "w1": 1}))
    assert only.candidates == ring.candidates(group(), 5)
    assert set(only.candidates) == {"w0", "w1"}
    document = explain_document(found, leader=LEADER, answered_by="coordinator-0")
    assert (document.epoch, document.version, document.unknown_here) == (3, 7, ())
    assert document.groups[0].since == "1970-01-01T00:01:00.000Z"
    assert document.groups[0].route is not None
    assert document.groups[0].route.version == "3.5"


async def test_a_follower_says_what_it_does_not_know() -> None:
    """Owners from its map, the route's version not."""
    here = await world(pool(), service())
    here.map = a_map((group(), pool().id))
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="coordinator-1")
    assert document.unknown_here == LEADER_KNOWS
    assert document.groups[0].owners == ("w0",)
    assert document.groups[0].route is not None
    assert document.groups[0].route.version is None
    assert document.answered_by == "coordinator-1"


async def test_candidates_and_why() -> None:
    """In the ring's order, the dead one too; loads and caps where the leader answers."""
    here = await world(pool(), service())
    here.map = replace(a_map((group(), pool().id)), incarnations=dict.fromkeys(WORKERS, "i"))
    ring = Ring.build(RingSpec("xxh3", 160, dict.fromkeys(WORKERS, 1)))
    order = ring.candidates(group(), 3)
    weighed = Weighed({group(): 2.5}, cap=4.0, release=None)
    for known in (weighed, None):
        found = here.explainer.explain(
            pool().ref, shard_map=here.map, members=statuses(), written=None, weighed=known
        )
        assert found is not None
        document = explain_document(found, leader=LEADER, answered_by="c")
        said = {each.worker: each for each in document.groups[0].considered}
        assert tuple(said) == order
        assert [each.order for each in said.values()] == [1, 2, 3]
        verdicts = {name: each.verdict for name, each in said.items()}
        assert verdicts == {"w0": "owner", "w1": "standby", "w2": "dead"}
        loads = {name: each.load for name, each in said.items()}
        if known is None:
            assert set(loads.values()) == {None}
        else:
            assert loads == {"w0": 3.5, "w1": 0.0, "w2": 0.0}
            assert {each.cap for each in said.values()} == {4.0}


async def test_a_refused_pool() -> None:
    """The refusal with its group; nothing is served."""
    here = await world(pool(), service(fleet=None))
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=None, answered_by="c")
    assert (document.claim.state, document.groups, document.leader) == ("refused", [], None)
    (refusal,) = document.refusals
    assert (refusal.reason, refusal.group) == ("ServiceNotLabelled", "ns/epp:9002")


async def test_another_controllers_pool() -> None:
    """Why is said, and that is all."""
    here = await world(pool(controller=THEIRS))
    found = here.explain()
    assert found is not None
    assert isinstance(found.decision, NotOurs)
    document = explain_document(found, leader=None, answered_by="c")
    assert document.claim.state == "not_ours"
    assert document.claim.why.endswith(THEIRS)


async def test_both_groups_of_a_pool_that_moves_over() -> None:
    """The second one is not placed yet."""
    here = await world(pool(also="new"), service())
    here.map = a_map((group(), pool().id))
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="c")
    assert [(each.group, each.role, each.phase) for each in document.groups] == [
        ("ns/epp:9002", "picker", "owned"),
        ("ns/new:9002", "also-serve", "unowned"),
    ]
    assert document.groups[1].route is None
    assert document.groups[1].service is not None
    assert document.groups[1].service.state == "missing"


@pytest.mark.parametrize(("pin", "workers"), [("worker in (w1,w2)", ("w1",)), ("zone=mars", ())])
async def test_a_pin_and_who_meets_it(pin: str, workers: tuple[str, ...]) -> None:
    """The living only; nobody is said too: the pool is placed as without a pin then."""
    plain = pool()
    here = await world(replace(plain, annotations={**plain.annotations, PIN: pin}), service())
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="c")
    assert document.groups[0].pin is not None
    assert document.groups[0].pin.text == pin
    assert document.groups[0].pin.workers == workers


@pytest.mark.parametrize(
    ("owners", "expected"), [(("w0",), "stays on one worker"), ((), "nobody has it")]
)
async def test_a_group_in_quarantine(owners: tuple[str, ...], expected: str) -> None:
    """The phase, and what it means; no other phase needs a word."""
    here = await world(pool(), service())
    owned = a_map((group(), pool().id))
    isolated = replace(
        owned.placements[group()], phase=Phase.QUARANTINED, owners=owners, standby=None
    )
    for placement, noted in ((isolated, True), (owned.placements[group()], False)):
        here.map = replace(owned, placements={group(): placement})
        found = here.explain()
        assert found is not None
        document = explain_document(found, leader=LEADER, answered_by="c")
        note = document.groups[0].note
        assert (note is not None and expected in note) is noted


async def test_a_group_that_is_being_withdrawn() -> None:
    """The pool names another Service; the map has the old group for a moment."""
    here = await world(pool(service="b"))
    here.map = a_map((group(), pool().id))
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="c")
    assert [(each.group, each.role) for each in document.groups] == [
        ("ns/b:9002", "picker"),
        ("ns/epp:9002", "former"),
    ]
    assert document.groups[1].service is None


async def test_a_pool_that_only_the_map_still_has() -> None:
    """Deleted a moment ago."""
    here = await world()
    here.map = a_map((group(), pool().id))
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="c")
    assert (document.claim.state, document.uid) == ("gone", None)


async def test_a_pool_that_nobody_knows() -> None:
    """Neither source nor map."""
    here = await world(pool("b"))
    here.map = a_map((group(), pool("b").id))
    assert here.explain() is None


async def test_a_service_that_could_not_be_written() -> None:
    """The leader's error, word for word."""
    here = await world(pool())
    services = here.estate.services
    assert services is not None
    services._failures[key()] = Failure("may not create services", 3, 0.0)
    found = here.explain(written=lambda _: None)
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="c")
    assert document.groups[0].service is not None
    assert document.groups[0].service.error == "may not create services"


async def test_what_the_source_skips_of_the_pool() -> None:
    """Its last good state is served; those of other pools are not its own."""
    here = await world(pool())
    here.source.skipped = (
        Problem("a.yaml, document 1", "InferencePool ns/a: spec.targetPorts: no port"),
        Problem("a.yaml, document 2", "InferencePool ns/ab: spec: missing"),
    )
    found = here.explain()
    assert found is not None
    assert found.problems == ("a.yaml, document 1: InferencePool ns/a: spec.targetPorts: no port",)


async def test_workers_that_leave_change_the_ring() -> None:
    """It is built anew only when they do."""
    here = await world(pool())
    here.map = a_map((group(), pool().id))
    here.explain()
    ring = here.explainer._ring
    here.explain()
    assert here.explainer._ring is ring


def test_the_file_of_a_route(tmp_path: Path) -> None:
    """Named whether or not it is there yet."""
    routes = EdsRoutes(tmp_path, settings=RouteSettings(), clock=LoopClock())
    assert isinstance(routes, Located)
    assert routes.where(group()) == f"EDS file {tmp_path}/ns~epp~9002.json"


async def test_who_of_those_named_is_unwell_and_why() -> None:
    """The owner is suspect, the stand-by is well, and whoever else is dead is no matter of this."""
    here = await world(pool(), service())
    here.map = a_map((group(), pool().id))
    suspect, well, dead = statuses()
    why = "silent: beat 0 s, control 3 s"
    suspect = replace(suspect, state=MemberState.SUSPECT, signal=Signal.SILENT, why=why)
    found = here.explainer.explain(
        pool().ref, shard_map=here.map, members=[suspect, well, dead], written=None
    )
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="c")
    (unwell,) = document.groups[0].unwell
    assert (unwell.id, unwell.state, unwell.signal) == ("w0", "suspect", "silent")
    assert unwell.why == why


async def test_what_it_picks_by() -> None:
    """The built-in configuration where nobody wrote one; what it asks for in vain is a problem."""
    here = await world(replace(pool(), annotations={PROFILE: "chat"}), service())
    found = here.explain()
    assert found is not None
    document = explain_document(found, leader=LEADER, answered_by="coordinator-0")
    assert document.picking is not None
    assert document.picking.name == "built-in"
    assert "no configuration is called 'chat'" in document.picking.problem
    weights = {row.plugin: row.weight for row in document.picking.rows if row.weight is not None}
    assert weights == {
        "queue-scorer": 2.0,
        "kv-cache-utilization-scorer": 2.0,
        "prefix-cache-scorer": 3.0,
        "active-request-scorer": 1.0,
    }

"""A pool's scheduler as a whole: the router's own cases, its admission, and plugins that fail."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.faults import SLOW_SECONDS, PluginFaults
from epp_worker.scheduling.plugin import Candidates, PluginContext, PluginType, Selection
from epp_worker.scheduling.plugins.pickers import TIE
from epp_worker.scheduling.profile import Named, Watch
from epp_worker.scheduling.registry import BUILT_IN
from epp_worker.scheduling.scheduler import PoolView, Scheduler
from fleet.picking import DEFAULT, KINDS, PluginKind, Role
from fleet.picking.parameters import AnyParameters, Parameters
from tests.picking import POOL, Bench, endpoint, request

HERMETIC = """
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: lora-affinity-scorer}
"""
"""The configuration of llm-d-router's test/integration/epp: all weights 1."""

Row = tuple[float, float, tuple[str, ...]]


def chosen(scheduler: Scheduler, asked: PickRequest, states: Sequence[EndpointState]) -> str:
    answer = scheduler.select(asked, states)
    assert isinstance(answer, Selection)
    return answer.endpoints[0].endpoint.pod


@pytest.mark.parametrize(
    ("model", "rows", "pod"),
    [
        ("my-model-12345", [(3, 0.2, ()), (0, 0.1, ()), (10, 0.2, ())], 1),
        (
            "sql-lora-1fdg2",
            [
                (0, 0.2, ("foo", "bar")),
                (0, 0.1, ("foo", "sql-lora-1fdg2")),
                (10, 0.2, ("foo", "bar")),
            ],
            1,
        ),
        (
            "target",
            [(10, 0.2, ("foo", "bar")), (10, 0.4, ("foo", "target")), (10, 0.3, ("foo",))],
            1,
        ),
        (
            "target",
            [(6, 0.2, ("foo", "bar", "target")), (0, 0.85, ("foo",)), (10, 0.9, ("foo",))],
            0,
        ),
        ("sql-lora-1fdg3", [(4, 0.2, ()), (4, 0.85, ())], 0),
    ],
)
def test_the_routers_hermetic_table(model: str, rows: list[Row], pod: int) -> None:
    """Its P(index, queue, kv, models) and who was picked; two adapters may run at once there."""
    states = [
        endpoint(index, queue=queue, kv=kv, active=models, most_models=2 if models else 0)
        for index, (queue, kv, models) in enumerate(rows)
    ]
    assert chosen(Bench().scheduler(HERMETIC), request(model), states) == f"pod-{pod}"


@pytest.mark.parametrize("seed", range(40))
def test_scoring_in_one_pass_is_the_sum_of_the_plugins(seed: int) -> None:
    """The usual scorers fused and one by one rate alike, whatever is known of the endpoints."""
    rng = random.Random(seed)
    bench = Bench()
    bench.time = 100.0
    states = []
    for index in range(rng.randint(2, 12)):
        inflight = rng.choice([0, 0, 1, 7])
        states.append(
            endpoint(
                index,
                queue=rng.choice([None, 0.0, 2.0, 40.0]),
                kv=rng.choice([None, 0.0, 0.5, 1.0, rng.random()]),
                inflight=inflight,
                unseen=rng.randint(-2, inflight),
                at=rng.choice([5.0, 99.0]),
            )
        )
    view = PoolView(POOL, lambda: 100.0, rng.random, bench.slot, lambda: 10.0)
    rated = [
        Scheduler(DEFAULT, view, BUILT_IN, bench.faults, fuse=fuse)
        .profile("default")
        .rate(request(), states)
        for fuse in (True, False)
    ]
    assert rated[0] == pytest.approx(rated[1], abs=TIE)
    assert not bench.faults.counts()


def test_a_burst_spreads() -> None:
    """llm-d-router#2515: 200 requests at once, one pod with an empty queue and seven with one in
    it, metrics standing still: nobody gets more than 1.5 times the mean."""
    bench = Bench()
    scheduler = bench.scheduler("""
plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}]
""")
    states = [endpoint(index, queue=0 if index == 3 else 1) for index in range(8)]
    for _ in range(200):
        answer = scheduler.select(request(), states)
        assert isinstance(answer, Selection)
        answer.endpoints[0].inflight += 1
    assert max(state.inflight for state in states) <= 1.5 * 200 / 8


@pytest.mark.parametrize(("priority", "refused"), [(-1, True), (0, False), (5, False)])
def test_only_negative_priorities_are_shed(priority: int, refused: bool) -> None:
    """The router without flow control: saturation 1 is full."""
    states = [endpoint(0, queue=5), endpoint(1, kv=0.8)]
    answer = Bench().scheduler(HERMETIC).select(request(priority=priority), states)
    assert isinstance(answer, Refusal) is refused
    if isinstance(answer, Refusal):
        assert (answer.status, answer.reason) == (429, "rejected-saturated")


def test_with_room_nobody_is_shed() -> None:
    states = [endpoint(0, queue=5), endpoint(1, kv=0.7)]
    assert isinstance(Bench().scheduler(HERMETIC).select(request(priority=-1), states), Selection)


def test_a_request_without_a_body_is_never_refused() -> None:
    """GET /v1/models: there is nothing to filter by."""
    scheduler = Bench().scheduler("plugins: [{type: header-based-testing-filter}]")
    assert isinstance(scheduler.select(request(None), [endpoint(0)]), Selection)
    assert isinstance(scheduler.select(request("m"), [endpoint(0)]), Refusal)


def test_who_refuses_connections_is_the_last_resort() -> None:
    """However good its metrics look; alone it is better than nobody."""
    scheduler = Bench().scheduler(HERMETIC)
    states = [endpoint(0, queue=0), endpoint(1, queue=50, kv=0.9)]
    states[0].scrape_failed(refused=True)
    assert chosen(scheduler, request(), states) == "pod-1"
    assert chosen(scheduler, request(), states[:1]) == "pod-0"


class Faulty:
    """Every kind of plugin at once; does what `how` says."""

    def __init__(self, bench: Bench, how: str) -> None:
        self.bench = bench
        self.how = how

    def _act(self, answer: Any) -> Any:
        if self.how == "raises":
            raise RuntimeError("no")
        if self.how == "slow":
            self.bench.time += 2 * SLOW_SECONDS
        return [] if self.how == "short" else answer

    def score(self, asked: PickRequest, candidates: Candidates) -> Sequence[float]:
        """The worst first."""
        nan = float("nan")
        scores = [9.9 if index else nan for index, _ in enumerate(candidates)]
        answer: Sequence[float] = self._act(scores[::-1] if self.how == "wild" else scores)
        return answer

    def filter(self, asked: PickRequest, candidates: Candidates) -> Candidates:
        """Only the last."""
        kept: Candidates = self._act(candidates[-1:])
        return kept

    def order(self, candidates: Candidates, scores: Sequence[float]) -> Candidates:
        """The last."""
        found: Candidates = self._act(candidates[-1:])
        return found

    def picked(self, asked: PickRequest, picked: EndpointState) -> None:
        """Nothing."""
        self._act(None)


def with_faulty(bench: Bench, role: Role, how: str) -> Scheduler:
    faulty = Faulty(bench, how)
    method = {Role.SCORER: "score", Role.FILTER: "filter", Role.PICKER: "order"}.get(role, "picked")
    only = type("Only", (), {method: getattr(faulty, method)})

    def make(_: Parameters, __: PluginContext) -> object:
        return only()

    kind = PluginKind("faulty", frozenset({role}), Parameters)
    types = {**BUILT_IN, "faulty": PluginType("faulty", Parameters, make)}
    text = "plugins: [{type: queue-scorer}, {type: faulty}]"
    return bench.scheduler(text, types, kinds={**KINDS, "faulty": kind})


@pytest.mark.parametrize(
    ("role", "how", "pod"),
    [
        (Role.SCORER, "raises", "pod-0"),
        (Role.SCORER, "short", "pod-0"),
        (Role.FILTER, "raises", "pod-0"),
        (Role.PICKER, "raises", "pod-0"),
        (Role.PICKER, "short", "pod-0"),
    ],
)
def test_a_failing_plugin_loses_its_vote(
    role: Role, how: str, pod: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Never the request; counted each time, logged once."""
    bench = Bench()
    scheduler = with_faulty(bench, role, how)
    states = [endpoint(0, queue=0), endpoint(1, queue=9)]
    for _ in range(3):
        assert chosen(scheduler, request(), states) == pod
    assert bench.faults.counts() == {"faulty": 3}
    assert len([each for each in caplog.records if "plugin" in each.message]) == 1


@pytest.mark.parametrize(
    ("role", "heard", "judged"),
    [
        (Role.SCORER, "pod-1", "pod-0"),
        (Role.FILTER, "pod-1", "pod-1"),
        (Role.PICKER, "pod-1", "pod-1"),
    ],
)
def test_a_plugin_is_slow_by_three_of_its_last_eight_calls(
    role: Role, heard: str, judged: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The first two are heard; from the third on each is counted, and a scorer's vote is lost; the
    log says so once. A filter or picker is heard all the same: what it says may be about what can
    work at all."""
    bench = Bench()
    scheduler = with_faulty(bench, role, "slow")
    states = [endpoint(0, queue=0, inflight=1), endpoint(1, queue=9)]
    assert [chosen(scheduler, request(), states) for _ in range(2)] == [heard] * 2
    assert not bench.faults.counts()
    assert [chosen(scheduler, request(), states) for _ in range(3)] == [judged] * 3
    assert bench.faults.counts() == {"faulty": 3}
    assert len([each for each in caplog.records if "plugin" in each.message]) == 1


@pytest.mark.parametrize(
    ("took", "faults"),
    [
        ("s.......s.......s.......", 0),
        ("ss......ss......ss......", 0),
        ("s..s...s", 1),
        ("s...s...s", 0),
        ("sss.....ss", 3),
        ("sss....s", 2),
        ("ssss....", 2),
    ],
)
def test_a_processor_taken_away_costs_no_vote(took: str, faults: int) -> None:
    """A call that is slow (s) because somebody else has the processor is seldom: fewer than three
    of eight calls count for nothing, whatever the plugin."""
    time = 0.0
    counted = PluginFaults()
    watch = Watch(POOL, counted, lambda: time)
    plugin = Named("p", "faulty", object())
    for each in took:
        watch.calls += 1
        began = time
        time += 2 * SLOW_SECONDS if each == "s" else SLOW_SECONDS / 2
        watch.too_slow(plugin, began)
    assert counted.counts().get("faulty", 0) == faults


def test_scores_are_clamped_and_what_is_no_number_is_nothing() -> None:
    """9.9 is 1, NaN is 0: 1 + 0 against 0 + 1 is a tie, which requests in flight break."""
    bench = Bench()
    scheduler = with_faulty(bench, Role.SCORER, "good")
    states = [endpoint(0, queue=0, inflight=1), endpoint(1, queue=9)]
    assert chosen(scheduler, request(), states) == "pod-1"
    assert not bench.faults.counts()


def test_an_observer_that_raises_harms_nobody() -> None:
    bench = Bench()
    scheduler = with_faulty(bench, Role.OTHER, "raises")
    scheduler.picked(request(), endpoint(0))
    assert bench.faults.counts() == {"faulty": 1}


def test_plugins_may_ask_for_those_listed_after_them() -> None:
    """A decider below its handler; and what refers to itself is an error, not a hang."""

    def make(_: Parameters, context: PluginContext) -> object:
        return context.find("self")

    types = {**BUILT_IN, "self": PluginType("self", Parameters, make)}
    kind = PluginKind("self", frozenset({Role.OTHER}), Parameters)
    with pytest.raises(ValueError, match="self: refers to itself"):
        Bench().scheduler("plugins: [{type: self}]", types, kinds={**KINDS, "self": kind})


def test_a_plugin_that_cannot_be_made_is_named() -> None:
    def make(_: Parameters, __: PluginContext) -> object:
        raise OSError("no such model")

    types = {**BUILT_IN, "queue-scorer": PluginType("queue-scorer", Parameters, make)}
    with pytest.raises(ValueError, match=r"q \(queue-scorer\): no such model"):
        Bench().scheduler("plugins: [{type: queue-scorer, name: q}]", types)


def test_a_decider_that_is_left_out_never_decides() -> None:
    """A configuration that names it works, as `config check` says."""
    scheduler = Bench().scheduler("""
plugins:
- {type: always-disagg-multimodal-decider}
- type: disagg-profile-handler
  parameters: {deciders: {encode: always-disagg-multimodal-decider}}
schedulingProfiles: [{name: decode}, {name: encode}]
""")
    answer = scheduler.select(request(), [endpoint(0)])
    assert isinstance(answer, Selection)
    assert not answer.headers


def test_every_type_that_the_fleet_has_can_be_made() -> None:
    """What configurations may name and is not left out or built in is in the workers' registry,
    with the same parameters."""
    silent = {Role.PARSER}
    wanted = {
        kind.type: kind.parameters
        for kind in KINDS.values()
        if not (kind.left_out or kind.built_in or kind.roles & silent)
    }
    assert {each.type: each.parameters for each in BUILT_IN.values()} == wanted
    assert AnyParameters not in wanted.values()

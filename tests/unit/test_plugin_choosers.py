"""Filters, pickers, profile handlers and detectors against values worked out by hand."""

import pytest

from epp_worker.scheduling.contract import Refusal
from epp_worker.scheduling.plugin import Selection
from fleet.errors import SettingsError
from tests.picking import Bench, endpoint, request

ROLE = "llm-d.ai/role"
ROLES = (
    None,
    "decode",
    "prefill",
    "encode",
    "prefill-decode",
    "encode-prefill",
    "encode-prefill-decode",
    "both",
    "other",
)


@pytest.mark.parametrize(
    ("type_", "kept"),
    [
        ("decode-filter", {None, "decode", "prefill-decode", "both", "encode-prefill-decode"}),
        (
            "prefill-filter",
            {"prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"},
        ),
        ("encode-filter", {"encode", "encode-prefill", "encode-prefill-decode"}),
    ],
)
def test_roles(type_: str, kept: set[str | None]) -> None:
    """Only decode takes pods without a role."""
    states = [endpoint(i, labels={ROLE: r} if r else {}) for i, r in enumerate(ROLES)]
    found = Bench().make(type_).filter(request(), states)
    assert {each.endpoint.labels.get(ROLE) for each in found} == kept


def test_by_label() -> None:
    states = [endpoint(0, labels={"a": "x"}), endpoint(1, labels={"a": "y"}), endpoint(2)]
    strict = Bench().make("by-label", label="a", validValues=["x"])
    assert strict.filter(request(), states) == states[:1]
    loose = Bench().make("by-label", label="a", validValues=["y"], allowsNoLabel=True)
    assert loose.filter(request(), states) == states[1:]


def test_label_selector() -> None:
    """As Kubernetes: NotIn takes who has no such label."""
    states = [
        endpoint(0, labels={"a": "x", "gpu": "h100"}),
        endpoint(1, labels={"a": "x"}),
        endpoint(2, labels={"gpu": "a100"}),
    ]
    plugin = Bench().make(
        "label-selector-filter",
        matchLabels={"a": "x"},
        matchExpressions=[{"key": "gpu", "operator": "NotIn", "values": ["a100", "l4"]}],
    )
    assert plugin.filter(request(), states) == states[:2]
    exists = Bench().make(
        "label-selector-filter", matchExpressions=[{"key": "gpu", "operator": "Exists"}]
    )
    assert exists.filter(request(), states) == [states[0], states[2]]


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (None, []),
        ("192.168.1.1", [1]),
        ("192.168.1.1:8000, 192.168.1.2:8000", [0, 2]),
        ("192.168.1.1:8000,192.168.1.1:8002", [0]),
        ("10.0.0.1,x,", []),
    ],
)
def test_header_based_testing(header: str | None, found: list[int]) -> None:
    """A bare IP is its last port; one endpoint for each IP; no header, nobody."""
    states = [endpoint(0), endpoint(0, port=8002, rank=1), endpoint(1)]
    headers = {} if header is None else {"test-epp-endpoint-selection": header}
    kept = Bench().make("header-based-testing-filter").filter(request(headers=headers), states)
    assert kept == [states[index] for index in found]


def test_utilization_filter() -> None:
    states = [
        endpoint(0, queue=2, kv=0.5, inflight=3),
        endpoint(1, queue=9, kv=0.5),
        endpoint(2, queue=None, kv=0.95),
    ]
    bounds = [
        {"metric": "waiting-queue", "maxValue": 5},
        {"metric": "kv-cache-utilization", "maxValue": 0.9},
    ]
    plugin = Bench().make("utilization-filter", conditions=bounds)
    assert plugin.filter(request(), states) == states[:1]
    assert plugin.filter(request(), states[1:]) == []
    loose = Bench().make("utilization-filter", conditions=bounds, fallbackOnEmpty=True)
    assert loose.filter(request(), states[1:]) == states[1:]
    busy = Bench().make(
        "utilization-filter", conditions=[{"metric": "active-requests", "maxValue": 2}]
    )
    assert busy.filter(request(), states) == states[1:]


def test_max_score_breaks_ties_by_requests_in_flight() -> None:
    """And among equals of those too, by chance: each of the two in 200 picks."""
    picker = Bench().make("max-score-picker")
    states = [endpoint(0, inflight=1), endpoint(1), endpoint(2), endpoint(3)]
    scores = [1.0, 1.0, 1.0 - 1e-12, 0.9]
    seen = {picker.order(states, scores)[0].address for _ in range(200)}
    assert seen == {states[1].address, states[2].address}


def test_max_score_with_fallbacks() -> None:
    picker = Bench().make("max-score-picker", maxNumOfEndpoints=3)
    states = [endpoint(index) for index in range(4)]
    found = picker.order(states, [0.1, 0.9, 0.5, 0.3])
    assert [each.endpoint.pod for each in found] == ["pod-1", "pod-2", "pod-3"]


def test_weighted_random() -> None:
    """3 : 1 by score; zeros only after all others."""
    picker = Bench().make("weighted-random-picker")
    states = [endpoint(index) for index in range(3)]
    firsts = [picker.order(states, [3.0, 1.0, 0.0])[0].endpoint.pod for _ in range(4000)]
    assert firsts.count("pod-0") / 4000 == pytest.approx(0.75, abs=0.03)
    assert "pod-2" not in firsts
    many = Bench().make("weighted-random-picker", maxNumOfEndpoints=3)
    assert many.order(states, [3.0, 0.0, 1.0])[2] is states[1]
    zeros = {picker.order(states, [0.0, 0.0, 0.0])[0].endpoint.pod for _ in range(100)}
    assert len(zeros) == 3


def test_random() -> None:
    picker = Bench().make("random-picker")
    states = [endpoint(index) for index in range(3)]
    firsts = [picker.order(states, [1.0, 0.0, 0.0])[0].endpoint.pod for _ in range(3000)]
    assert firsts.count("pod-0") / 3000 == pytest.approx(1 / 3, abs=0.05)


DISAGG = """
plugins:
- {type: prefill-filter}
- {type: decode-filter}
- {type: queue-scorer}
- {type: disagg-profile-handler, parameters: {deciders: {prefill: DECIDER}}}
- {type: always-disagg-pd-decider}
- {type: prefix-based-pd-decider, parameters: {nonCachedTokens: 100}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}, {pluginRef: queue-scorer}]}
- {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: queue-scorer}]}
"""


def test_prefill_is_split_off() -> None:
    """Each profile chooses among its own; the sidecar learns the prefiller by header."""
    scheduler = Bench().scheduler(DISAGG.replace("DECIDER", "always-disagg-pd-decider"))
    states = [
        endpoint(0, queue=5, labels={ROLE: "decode"}),
        endpoint(1, queue=1, labels={ROLE: "decode"}),
        endpoint(2, queue=7, labels={ROLE: "prefill"}),
        endpoint(3, queue=0, labels={ROLE: "prefill"}),
    ]
    chosen = scheduler.select(request(), states)
    assert isinstance(chosen, Selection)
    assert [each.address for each in chosen.endpoints] == ["192.168.1.2:8000"]
    assert chosen.headers == {"x-prefiller-host-port": "192.168.1.4:8000"}
    assert chosen.removed == ("x-encoder-hosts-ports",)
    assert chosen.others["prefill"] == (states[3],)


@pytest.mark.parametrize(("tokens", "split"), [(99, False), (100, True), (0, False)])
def test_prefill_by_the_length_of_what_is_new(tokens: int, split: bool) -> None:
    """A client's own header never reaches the sidecar."""
    scheduler = Bench().scheduler(DISAGG.replace("DECIDER", "prefix-based-pd-decider"))
    states = [endpoint(0, labels={ROLE: "decode"}), endpoint(1, labels={ROLE: "prefill"})]
    chosen = scheduler.select(request(tokens=tokens), states)
    assert isinstance(chosen, Selection)
    assert bool(chosen.headers) is split
    assert ("x-prefiller-host-port" in chosen.removed) is not split


def test_prefill_first_asks_nobody() -> None:
    """The router's other order of stages; a decider beside it is a contradiction."""
    text = DISAGG.replace("deciders: {prefill: DECIDER}", "stageOrder: prefill-first")
    states = [endpoint(0, labels={ROLE: "decode"}), endpoint(1, labels={ROLE: "prefill"})]
    chosen = Bench().scheduler(text).select(request(), states)
    assert isinstance(chosen, Selection)
    assert chosen.headers == {"x-prefiller-host-port": "192.168.1.2:8000"}
    both = DISAGG.replace("{prefill: DECIDER}", "{prefill: x}, stageOrder: prefill-first")
    with pytest.raises(SettingsError, match="no prefill decider is asked"):
        Bench().scheduler(both)


def test_the_older_handler_of_prefill_and_decode() -> None:
    """By the pods' primary port, if it names one; the rank goes into a header."""
    text = DISAGG.replace("disagg-profile-handler", "pd-profile-handler").replace(
        "deciders: {prefill: DECIDER}",
        "deciderPluginName: always-disagg-pd-decider, primaryPort: 9000",
    )
    states = [endpoint(0, labels={ROLE: "decode"}), endpoint(1, labels={ROLE: "prefill"})]
    chosen = Bench().scheduler(text).select(request(), states)
    assert isinstance(chosen, Selection)
    assert chosen.destination == "192.168.1.1:9000"
    assert chosen.headers == {
        "x-prefiller-host-port": "192.168.1.2:8000",
        "x-data-parallel-host-port": "192.168.1.1:8000",
    }


def test_without_decoders_the_request_is_refused() -> None:
    scheduler = Bench().scheduler(DISAGG.replace("DECIDER", "always-disagg-pd-decider"))
    answer = scheduler.select(request(), [endpoint(0, labels={ROLE: "prefill"})])
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.reason) == (429, "rejected-saturated")


def test_data_parallel() -> None:
    """The rank goes into a header, the request to the primary port."""
    scheduler = Bench().scheduler(
        "plugins: [{type: queue-scorer}, {type: data-parallel-profile-handler}]"
    )
    states = [endpoint(0, queue=3), endpoint(0, queue=0, port=8001, rank=1)]
    chosen = scheduler.select(request(), states)
    assert isinstance(chosen, Selection)
    assert chosen.endpoints[0] is states[1]
    assert chosen.destination == "192.168.1.1:8000"
    assert chosen.headers == {"x-data-parallel-host-port": "192.168.1.1:8001"}


def test_profile_by_header() -> None:
    scheduler = Bench().scheduler("""
plugins:
- {type: header-profile-handler}
- {type: by-label, name: only-a, parameters: {label: a, validValues: [x]}}
- {type: by-label, name: only-b, parameters: {label: b, validValues: [x]}}
schedulingProfiles:
- {name: decode, plugins: [{pluginRef: only-a}]}
- {name: other, plugins: [{pluginRef: only-b}]}
""")
    states = [endpoint(0, labels={"a": "x"}), endpoint(1, labels={"b": "x"})]
    for headers, index in (({}, 0), ({"epp-profile": "other"}, 1)):
        chosen = scheduler.select(request(headers=headers), states)
        assert isinstance(chosen, Selection)
        assert chosen.endpoints[0] is states[index]
    assert isinstance(scheduler.select(request(headers={"epp-profile": "no"}), states), Refusal)


def test_utilization_detector() -> None:
    """Mean of max(2.5/5, .2/.8) = 0.5, max(0, .8/.8) = 1 and an overdue one = 1."""
    bench = Bench()
    bench.time, bench.stale_after = 10.0, 0.2
    detector = bench.make("utilization-detector")
    states = [
        endpoint(0, queue=2.5, kv=0.2, at=9.9),
        endpoint(1, queue=0, kv=0.8, at=9.9),
        endpoint(2, queue=0, kv=0, at=9.7),
    ]
    assert detector.saturation(states) == pytest.approx(2.5 / 3)
    assert detector.saturation([]) == 1.0
    assert detector.filter(request(), states) == states[:1]
    assert detector.filter(request(), states[1:]) == states[1:]
    bench.stale_after = 0.5
    assert detector.saturation(states) == pytest.approx(1.5 / 3)


def test_concurrency_detector() -> None:
    """(30 + 10) / 200, tokens (0 + 500) / 2000, and the mean of the larger ones."""
    states = [endpoint(0, inflight=30), endpoint(1, inflight=10, tokens=500)]
    for mode, expected in (("requests", 0.2), ("tokens", 0.25), ("hybrid", 0.4)):
        detector = Bench().make(
            "concurrency-detector", concurrencyMode=mode, maxTokenConcurrency=1000
        )
        assert detector.saturation(states) == pytest.approx(expected)
    tight = Bench().make("concurrency-detector", maxConcurrency=20, headroom=0.25)
    assert tight.filter(request(), states) == states[1:]

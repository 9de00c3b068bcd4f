"""Scorers against values worked out by hand from the formulas."""

import base64

import pytest

from tests.picking import Bench, endpoint, request


def test_queue() -> None:
    """(10 - q) / (10 - 0)."""
    states = [endpoint(0, queue=3), endpoint(1, queue=0), endpoint(2, queue=10)]
    assert Bench().make("queue-scorer").score(request(), states) == pytest.approx([0.7, 1.0, 0.0])


def test_equal_queues() -> None:
    states = [endpoint(0, queue=4), endpoint(1, queue=4)]
    assert Bench().make("queue-scorer").score(request(), states) == [1.0, 1.0]


def test_requests_picked_since_the_scrape_count_as_queued() -> None:
    """2 + 3 unseen is longer than 4."""
    states = [endpoint(0, queue=2, inflight=5, unseen=3), endpoint(1, queue=4, inflight=9)]
    assert Bench().make("queue-scorer").score(request(), states) == [0.0, 1.0]


def test_what_is_unknown_counts_as_the_mean() -> None:
    """Mean of 0 and 10; overdue metrics are unknown too."""
    bench = Bench()
    bench.time = 100.0
    states = [
        endpoint(0, queue=0, at=50),
        endpoint(1, queue=10, at=50),
        endpoint(2, queue=None, at=50),
        endpoint(3, queue=99, at=5),
    ]
    found = bench.make("queue-scorer").score(request(), states)
    assert found == pytest.approx([1.0, 0.0, 0.5, 0.5])


def test_kv_cache() -> None:
    states = [endpoint(0, kv=0.2), endpoint(1, kv=0.85), endpoint(2, kv=None)]
    found = Bench().make("kv-cache-utilization-scorer").score(request(), states)
    assert found == pytest.approx([0.8, 0.15, 0.475])


def test_running() -> None:
    states = [endpoint(0, running=6), endpoint(1, running=2), endpoint(2, running=4)]
    found = Bench().make("running-requests-size-scorer").score(request(), states)
    assert found == pytest.approx([0.0, 1.0, 0.5])


def test_load_aware() -> None:
    """0.5 * (1 - q/128), 0 from the threshold on."""
    states = [endpoint(0, queue=0), endpoint(1, queue=64), endpoint(2, queue=500)]
    found = Bench().make("load-aware-scorer").score(request(), states)
    assert found == pytest.approx([0.5, 0.25, 0.0])
    found = Bench().make("load-aware-scorer", threshold=256).score(request(), states[1:2])
    assert found == pytest.approx([0.375])


def test_token_load() -> None:
    """1 - (t + own) / 1000, own being the 100 tokens of the prompt."""
    scorer = Bench().make("token-load-scorer", queueThresholdTokens=1000)
    states = [endpoint(0), endpoint(1, tokens=500), endpoint(2, tokens=5000)]
    assert scorer.score(request(tokens=100), states) == pytest.approx([0.9, 0.4, 0.0])


def test_active_requests() -> None:
    """(8 - n) / 8."""
    states = [endpoint(0, inflight=2), endpoint(1, inflight=8), endpoint(2)]
    found = Bench().make("active-request-scorer").score(request(), states)
    assert found == pytest.approx([0.75, 0.0, 1.0])
    tuned = Bench().make("active-request-scorer", idleThreshold=2, maxBusyScore=0.5)
    states[0].inflight = 4
    assert tuned.score(request(), states) == pytest.approx([0.25, 0.0, 1.0])
    assert tuned.score(request(), states[2:]) == [1.0]


def test_lora() -> None:
    """Active, room for another, waiting, full; the router's four cases."""
    states = [
        endpoint(0, active=["a", "b"], most_models=2),
        endpoint(1, active=["b"], most_models=4),
        endpoint(2, active=["b", "c"], waiting_models=["a"], most_models=2),
        endpoint(3, active=["b", "c"], most_models=2),
        endpoint(4),
    ]
    found = Bench().make("lora-affinity-scorer").score(request("a"), states)
    assert found == [1.0, 0.8, 0.6, 0.0, 0.0]


def test_an_idle_adapter_is_remembered() -> None:
    """vllm#45325: it drops out of the metrics when idle; its pod is still the warm one."""
    bench = Bench()
    scorer = bench.make("lora-affinity-scorer")
    states = [endpoint(0, active=["a"], most_models=4), endpoint(1, most_models=4)]
    scorer.score(request("a"), states)
    states[0].lora_running = frozenset()
    assert scorer.score(request("a"), states) == [0.9, 0.8]
    bench.time = 301.0
    assert scorer.score(request("a"), states) == [0.8, 0.8]


def test_context_length() -> None:
    """In range: 0.3 + 0.7 * (0.7 / (1 + 2048/10000) + 0.3 * (2048 - 1024) / 2048); 1000 below: half
    of 0.3; no label: 0.5; a label that is no range: 0."""
    label = "llm-d.ai/context-length-range"
    states = [
        endpoint(0, labels={label: "0-2048"}),
        endpoint(1, labels={label: "2024-8192"}),
        endpoint(2),
        endpoint(3, labels={label: "many"}),
        endpoint(4, labels={label: "1024-1024"}),
    ]
    plugin = Bench().make("context-length-aware")
    found = plugin.score(request(tokens=1024), states)
    assert found == pytest.approx([0.811707, 0.15, 0.5, 0.0, 1.0], abs=1e-5)
    assert plugin.filter(request(tokens=1024), states) == states
    strict = Bench().make("context-length-aware", enableFiltering=True)
    assert strict.filter(request(prompt=b"x" * 4096), states) == [states[0], states[2], states[4]]


def test_no_hit_lru() -> None:
    """Never used first, in their order; then by age, the oldest first."""
    scorer = Bench().make("no-hit-lru-scorer")
    states = [endpoint(index) for index in range(3)]
    assert scorer.score(request(), states) == [1.0, 0.5, 0.0]
    for chosen in (states[0], states[2]):
        asked = request()
        scorer.score(asked, states)
        scorer.picked(asked, chosen)
    assert scorer.score(request(), states) == [0.5, 1.0, 0.0]
    assert scorer.score(request(), states[:1]) == [1.0]
    asked = request()
    scorer.score(asked, states)
    scorer.prefilled(asked, states[1])
    assert scorer.score(request(), states) == [1.0, 0.0, 0.5], "who prefills is used as well"


def token(name: str) -> dict[str, str]:
    return {"x-session-token": base64.b64encode(name.encode()).decode()}


def test_session_by_the_endpoints_name() -> None:
    """The client brings back what the last response told it."""
    scorer = Bench().make("session-affinity-scorer")
    states = [endpoint(0), endpoint(1, rank=1)]
    asked = request(headers=token("ns/pod-1-rank-1"))
    assert scorer.score(asked, states) == [0.0, 1.0]
    assert scorer.responded(asked, states[1], lambda _: None) == token("ns/pod-1-rank-1")
    for bad in ({}, {"x-session-token": "%%%"}, token("ns/gone-rank-0")):
        assert scorer.score(request(headers=bad), states) == [0.0, 0.0]


def test_session_by_the_clients_id() -> None:
    """Remembered where it was picked first, for the time to live after the last pick."""
    bench = Bench()
    scorer = bench.make(
        "session-affinity-scorer",
        strategy="session_id",
        sessionIdConfig={
            "sources": [{"header": "X-A"}, {"header": "x-session-id"}],
            "evictionTtlSeconds": 10,
        },
    )
    states = [endpoint(0), endpoint(1)]
    asked = request(headers={"x-session-id": "s1"})
    assert scorer.score(asked, states) == [0.0, 0.0]
    scorer.picked(asked, states[1])
    assert scorer.score(asked, states) == [0.0, 1.0]
    assert scorer.responded(asked, states[1], lambda _: None) is None
    scorer.picked(asked, states[0])
    assert scorer.score(asked, states) == [0.0, 1.0], "its own was there, and was passed over"
    assert scorer.score(request(headers={"x-a": "s2", "x-session-id": "s1"}), states) == [0, 0]
    bench.time = 10.5
    assert scorer.score(asked, states) == [0.0, 0.0]


def test_session_filter() -> None:
    """The session's endpoint alone, and everybody if it is not there."""
    chosen = Bench().make("session-affinity-filter")
    states = [endpoint(0), endpoint(1)]
    assert list(chosen.filter(request(headers=token("ns/pod-1-rank-0")), states)) == [states[1]]
    assert chosen.filter(request(headers=token("ns/pod-7-rank-0")), states) is states

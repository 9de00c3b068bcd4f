"""Pools that pick by configurations: what the gateway is told, what is counted, what changes."""

import logging
import random
from collections.abc import Sequence

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.contract import Pick
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import PluginContext, PluginType
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.registry import BUILT_IN
from fleet.model.pools import Endpoint, Pool
from fleet.picking import decode
from fleet.picking.choice import PROFILE, ConfigProblem, Configs
from fleet.picking.parameters import PickerParameters
from tests.picking import HEAD, POOL, request

ROLE = "llm-d.ai/role"


def configs(**texts: str) -> Configs:
    return Configs(
        {name: decode(HEAD + t, name=name, experimental=True) for name, t in texts.items()}
    )


def pool_of(schedulers: Schedulers, *labels: dict[str, str], profile: str = "p") -> PoolState:
    annotations = {PROFILE: profile} if profile else {}
    state = PoolState(
        Pool(POOL, "u", {"a": "b"}, (8000,), None, annotations=annotations),
        now=lambda: 0.0,
        rng=random.Random(1),
        schedulers=schedulers.scheduler,
    )
    state.set_endpoints(
        [
            Endpoint(f"pod-{index}", f"u{index}", f"10.0.0.{index + 1}:8000", 0, labels=each)
            for index, each in enumerate(labels)
        ]
    )
    return state


def picked(state: PoolState, **asked: object) -> Pick:
    answer = state.pick(request(**asked))  # type: ignore[arg-type]
    assert not hasattr(answer, "status")
    return answer


def told(pick: Pick) -> tuple[dict[str, str], list[str]]:
    """Headers set and removed by the reply."""
    mutation = ProcessingResponse.FromString(
        pick.headers_reply
    ).request_headers.response.header_mutation
    headers = {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}
    return headers, list(mutation.remove_headers)


def counts(states: Sequence[EndpointState]) -> list[int]:
    return [each.inflight for each in states]


def test_fallbacks_are_a_list() -> None:
    """Only where a picker is asked for them; the header has no blanks."""
    schedulers = Schedulers()
    schedulers.configs = configs(
        p="plugins: [{type: random-picker, parameters: {maxNumOfEndpoints: 2}}]"
    )
    pick = picked(pool_of(schedulers, {}, {}))
    headers, _ = told(pick)
    assert headers["x-gateway-destination-endpoint"] == pick.address
    assert sorted(pick.address.split(",")) == ["10.0.0.1:8000", "10.0.0.2:8000"]


def test_a_prefiller_is_counted_until_the_answer_begins() -> None:
    schedulers = Schedulers()
    schedulers.configs = configs(
        p="""
plugins:
- {type: prefill-filter}
- {type: decode-filter}
- {type: always-disagg-pd-decider}
- type: disagg-profile-handler
  parameters: {deciders: {prefill: always-disagg-pd-decider}}
schedulingProfiles:
- {name: prefill, plugins: [{pluginRef: prefill-filter}]}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
"""
    )
    state = pool_of(schedulers, {ROLE: "decode"}, {ROLE: "prefill"})
    states = list(state.endpoints())
    pick = picked(state)
    headers, removed = told(pick)
    assert headers["x-gateway-destination-endpoint"] == "10.0.0.1:8000"
    assert headers["x-prefiller-host-port"] == "10.0.0.2:8000"
    assert removed == ["x-encoder-hosts-ports"]
    assert counts(states) == [1, 1]
    pick.responded(lambda _: None)
    assert counts(states) == [1, 0]
    pick.release()
    pick.release()
    assert counts(states) == [0, 0]
    picked(state).release()
    assert counts(states) == [0, 0]


def test_tokens_are_counted_where_a_plugin_asks() -> None:
    """40 of the prompt, moved with the request, until the answer begins; by default none."""
    schedulers = Schedulers()
    schedulers.configs = configs(p="plugins: [{type: token-load-scorer}]")
    state = pool_of(schedulers, {}, {})
    one, other = state.endpoints()
    pick = picked(state, tokens=40)
    assert one.tokens + other.tokens == 40
    pick.served_by(one.address)
    pick.served_by(other.address)
    assert (one.tokens, other.tokens) == (0, 40)
    pick.responded(lambda _: None)
    assert other.tokens == 0
    pick.release()
    assert other.tokens == 0
    plain = pool_of(Schedulers(), {}, profile="")
    picked(plain, tokens=40)
    assert [each.tokens for each in plain.endpoints()] == [0]


def test_a_session_is_told_on_the_response() -> None:
    schedulers = Schedulers()
    schedulers.configs = configs(p="plugins: [{type: session-affinity-scorer}]")
    state = pool_of(schedulers, {}, {})
    pick = picked(state)
    ((name, value),) = pick.responded(lambda _: None)
    assert name == "x-session-token"
    for _ in range(5):
        assert picked(state, headers={name: value}).address == pick.address


def test_a_primary_port_that_serves_is_no_mismatch() -> None:
    """The gateway reports where it sent the request: to the pod's primary port."""
    schedulers = Schedulers()
    schedulers.configs = configs(
        p="plugins: [{type: data-parallel-profile-handler, parameters: {primaryPort: 9000}}]"
    )
    state = pool_of(schedulers, {})
    pick = picked(state)
    assert pick.address == "10.0.0.1:9000"
    pick.served_by("10.0.0.1:9000")
    assert state.mismatches == 0
    assert counts(list(state.endpoints())) == [1]


def test_a_configuration_says_the_response_phase_where_the_pool_does_not() -> None:
    """Both ways, and again when either changes."""
    detaching = "metadata: {annotations: {epp-fleet.dev/response-phase: detach}}\n"
    schedulers = Schedulers()
    schedulers.configs = configs(p=detaching, q="")
    state = pool_of(schedulers, {})
    assert picked(state).response_phase == "detach"
    asking = {PROFILE: "p", "epp-fleet.dev/response-phase": "drain"}
    state.update(Pool(POOL, "u", {"a": "b"}, (8000,), None, annotations=asking))
    assert picked(state).response_phase == "drain"
    state.update(Pool(POOL, "u", {"a": "b"}, (8000,), None, annotations={PROFILE: "q"}))
    assert picked(state).response_phase is None
    schedulers.configs = configs(p="", q=detaching)
    state.reconfigure()
    assert picked(state).response_phase == "detach"


def test_a_changed_configuration_is_taken_between_two_picks() -> None:
    """What the old one had open is released all the same."""
    schedulers = Schedulers()
    schedulers.configs = configs(p="plugins: [{type: queue-scorer}]")
    state = pool_of(schedulers, {}, {})
    pick = picked(state)
    first = state.scheduler
    state.reconfigure()
    assert state.scheduler is first
    schedulers.configs = configs(
        p="plugins: [{type: random-picker, parameters: {maxNumOfEndpoints: 2}}]"
    )
    state.reconfigure()
    assert state.scheduler is not first
    assert "," in picked(state).address
    pick.release()


def test_a_broken_or_missing_configuration_keeps_the_last_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The problem names pool and file; who never had one picks by the built-in one."""

    def fail(_: PickerParameters, __: PluginContext) -> object:
        raise ValueError("out of luck")

    types = {**BUILT_IN, "random-picker": PluginType("random-picker", PickerParameters, fail)}
    schedulers = Schedulers(types)
    good = configs(p="plugins: [{type: queue-scorer}]")
    schedulers.configs = good
    state = pool_of(schedulers, {})
    picked(state)
    first = state.scheduler
    with caplog.at_level(logging.WARNING):
        for broken in (
            Configs(problems=(ConfigProblem("p", "p.yaml", ("kind: is missing",)),)),
            Configs(folder="/configs"),
            configs(p="plugins: [{type: random-picker}]"),
        ):
            schedulers.configs = broken
            state.reconfigure()
            assert state.scheduler is first
    problems = [getattr(each, "problem", "") for each in caplog.records]
    assert [each.pool for each in caplog.records] == [str(POOL)] * 3  # type: ignore[attr-defined]
    assert problems[0].startswith("p.yaml: kind: is missing")
    assert "no configuration is called 'p' (/configs)" in problems[1]
    assert problems[2] == "p: random-picker (random-picker): out of luck"
    newcomer = pool_of(schedulers, {})
    assert picked(newcomer).address == "10.0.0.1:8000"
    assert newcomer.scheduler is not None
    assert newcomer.scheduler.config.name == "built-in"


def test_a_pool_that_asks_for_another_gets_it() -> None:
    """The annotation may change at any time."""
    schedulers = Schedulers()
    schedulers.configs = configs(
        p="plugins: [{type: queue-scorer}]", q="plugins: [{type: random-picker}]"
    )
    state = pool_of(schedulers, {})
    picked(state)
    state.update(Pool(POOL, "u", {"a": "b"}, (8000,), None, annotations={PROFILE: "q"}))
    assert state.scheduler is not None
    assert state.scheduler.config.name == "q"

"""The plugin types that configurations may name: what each is, and whether the fleet has it."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from fleet.picking import parameters as p

ParametersType: TypeAlias = type[Any]


class Role(StrEnum):
    """What a plugin is in a configuration; it may be several."""

    FILTER = "filter"
    SCORER = "scorer"
    PICKER = "picker"
    HANDLER = "profile handler"
    DETECTOR = "saturation detector"
    DECIDER = "decider"
    PARSER = "parser"
    PRODUCER = "producer"
    DATA = "data source or extractor"
    POLICY = "flow control policy"
    OTHER = "plugin"


@dataclass(frozen=True, slots=True)
class PluginKind:
    """A plugin type.

    Attributes:
        parameters: the struct that `parameters` decode into.
        left_out: what happens instead where the fleet does not have it; "" = it has it.
        built_in: what the fleet does of itself, so that naming the type changes nothing.
        advice: for a deprecated type, what to write today.
    """

    type: str
    roles: frozenset[Role]
    parameters: ParametersType = p.Parameters
    experimental: bool = False
    left_out: str = ""
    built_in: str = ""
    advice: str = ""


def _have(
    role: Role, types: Mapping[str, type[Any]], *, experimental: bool = False
) -> list[PluginKind]:
    return [
        PluginKind(type_, frozenset({role}), parameters, experimental)
        for type_, parameters in types.items()
    ]


def _lack(
    role: Role, types: Iterable[str], instead: str, *, experimental: bool = False
) -> list[PluginKind]:
    return [
        PluginKind(type_, frozenset({role}), p.AnyParameters, experimental, left_out=instead)
        for type_ in types
    ]


def _built_in(role: Role, types: Iterable[str], what: str) -> list[PluginKind]:
    return [PluginKind(type_, frozenset({role}), p.AnyParameters, built_in=what) for type_ in types]


_NONE = p.Parameters
_SCRAPED = "endpoints are scraped by the fleet's own settings (scrape.*)"
_COUNTED = "requests and tokens in flight are always counted"
_UNRATED = "the scorer is left out: nothing is rated by it"
_UNFILTERED = "the filter is left out: every endpoint passes it"
_UNPRODUCED = "what it produces does not exist here"
_NO_QUEUE = "there is no flow control, so there is nothing for it to order or limit"
_ADMITTED = "it is left out: nobody is refused by it"

_KINDS = [
    *_have(
        Role.SCORER,
        {
            "queue-scorer": _NONE,
            "kv-cache-utilization-scorer": _NONE,
            "running-requests-size-scorer": _NONE,
            "lora-affinity-scorer": _NONE,
            "prefix-cache-scorer": p.PrefixCacheScorerParameters,
            "load-aware-scorer": p.LoadAwareParameters,
            "token-load-scorer": p.TokenLoadParameters,
            "active-request-scorer": p.ActiveRequestParameters,
            "no-hit-lru-scorer": p.NoHitLruParameters,
        },
    ),
    *_have(
        Role.SCORER, {"session-affinity-scorer": p.SessionAffinityParameters}, experimental=True
    ),
    PluginKind(
        "context-length-aware", frozenset({Role.SCORER, Role.FILTER}), p.ContextLengthParameters
    ),
    *_have(
        Role.FILTER,
        {
            "label-selector-filter": p.LabelSelectorParameters,
            "decode-filter": _NONE,
            "prefill-filter": _NONE,
            "encode-filter": _NONE,
            "prefix-cache-affinity-filter": p.PrefixAffinityFilterParameters,
            "header-based-testing-filter": _NONE,
        },
    ),
    *_have(
        Role.FILTER,
        {
            "session-affinity-filter": p.SessionAffinityParameters,
            "utilization-filter": p.UtilizationFilterParameters,
        },
        experimental=True,
    ),
    PluginKind(
        "by-label",
        frozenset({Role.FILTER}),
        p.ByLabelParameters,
        advice="label-selector-filter or one of the role filters",
    ),
    PluginKind(
        "by-label-selector",
        frozenset({Role.FILTER}),
        p.LabelSelectorParameters,
        advice="label-selector-filter",
    ),
    *_have(
        Role.PICKER,
        {
            "max-score-picker": p.PickerParameters,
            "random-picker": p.PickerParameters,
            "weighted-random-picker": p.PickerParameters,
        },
    ),
    *_have(
        Role.HANDLER,
        {
            "single-profile-handler": _NONE,
            "data-parallel-profile-handler": p.DataParallelParameters,
            "disagg-profile-handler": p.DisaggParameters,
        },
    ),
    *_have(Role.HANDLER, {"header-profile-handler": p.HeaderProfileParameters}, experimental=True),
    PluginKind(
        "pd-profile-handler",
        frozenset({Role.HANDLER}),
        p.PdParameters,
        advice="disagg-profile-handler",
    ),
    *_have(
        Role.DECIDER,
        {"always-disagg-pd-decider": _NONE, "prefix-based-pd-decider": p.PrefixDeciderParameters},
    ),
    *_lack(
        Role.DECIDER,
        ("always-disagg-multimodal-decider",),
        "it never decides for a worker of its own: the request's media are not looked at",
    ),
    *(
        PluginKind(type_, frozenset({Role.DETECTOR, Role.FILTER}), parameters)
        for type_, parameters in {
            "utilization-detector": p.UtilizationDetectorParameters,
            "concurrency-detector": p.ConcurrencyDetectorParameters,
        }.items()
    ),
    PluginKind(
        "approx-prefix-cache-producer", frozenset({Role.PRODUCER}), p.PrefixProducerParameters
    ),
    *_built_in(Role.PRODUCER, ("inflight-load-producer",), _COUNTED),
    *_lack(
        Role.PRODUCER,
        ("session-id-producer",),
        "session ids are read from the headers that sessionIdConfig.sources names",
    ),
    *_built_in(
        Role.PRODUCER,
        ("token-producer", "tokenizer"),
        "tokens are estimated from the text, 4 bytes each",
    ),
    *_built_in(
        Role.DATA,
        ("metrics-data-source", "core-metrics-extractor", "endpoint-notification-source"),
        _SCRAPED,
    ),
    *_built_in(
        Role.OTHER,
        ("disagg-headers-handler", "prefill-header-handler"),
        "disagg-profile-handler sets its headers itself",
    ),
    *_have(
        Role.PARSER,
        {
            "openai-parser": p.AnyParameters,
            "anthropic-parser": p.AnyParameters,
            "vllmhttp-parser": p.AnyParameters,
            "passthrough-parser": p.AnyParameters,
        },
    ),
    *_lack(
        Role.PARSER,
        ("sglanghttp-parser", "vllmgrpc-parser", "vertexai-parser"),
        "the parser is left out: such a request is read by another one, or refused",
    ),
    *_lack(
        Role.SCORER,
        ("latency-scorer", "precise-prefix-cache-scorer", "mm-embeddings-cache-scorer"),
        _UNRATED,
    ),
    *_lack(
        Role.SCORER,
        (
            "header-label-affinity-scorer",
            "endpoint-attribute-scorer",
            "topology-affinity-scorer",
            "multicluster-queue-scorer",
            "multicluster-kv-cache-utilization-scorer",
            "multicluster-prefix-cache-scorer",
        ),
        _UNRATED,
        experimental=True,
    ),
    *_lack(Role.FILTER, ("slo-headroom-tier-filter",), _UNFILTERED),
    *_lack(
        Role.FILTER,
        (
            "endpoint-attribute-filter",
            "topology-affinity-filter",
            "multicluster-session-affinity-filter",
        ),
        _UNFILTERED,
        experimental=True,
    ),
    *_lack(
        Role.PRODUCER,
        ("precise-prefix-cache-producer",),
        "who asks it asks the approximate prefix cache instead",
    ),
    *_lack(
        Role.PRODUCER,
        (
            "predicted-latency-producer",
            "mm-embeddings-cache-producer",
        ),
        _UNPRODUCED,
    ),
    *_lack(
        Role.PRODUCER,
        (
            "burst-prefix-cache-producer",
            "p2p-source-producer",
            "multicluster-approx-prefix-cache-producer",
            "agent-identity",
        ),
        _UNPRODUCED,
        experimental=True,
    ),
    *_lack(
        Role.DATA,
        (
            "models-data-source",
            "models-data-extractor",
            "k8s-notification-source",
            "file-discovery",
            "dcgm-data-source",
            "dcgm-extractor",
            "topology-extractor",
            "local-syncer",
            "multicluster-metrics-data-source",
            "multicluster-metrics-extractor",
            "multicluster-file-discovery",
        ),
        "pools, pods and metrics come from the fleet's own source",
    ),
    *_lack(
        Role.POLICY,
        (
            "static-usage-limit-policy",
            "priority-holdback-policy",
            "soft-reflective-ceiling-policy",
            "global-strict-fairness-policy",
            "round-robin-fairness-policy",
            "program-aware-fairness",
            "fcfs-ordering-policy",
            "edf-ordering-policy",
            "slo-deadline-ordering-policy",
            "sheddable-eviction-filter",
            "priority-then-time-eviction-order-policy",
        ),
        _NO_QUEUE,
    ),
    *_lack(Role.OTHER, ("latency-slo-admitter", "probabilistic-admitter"), _ADMITTED),
    *_lack(
        Role.OTHER,
        ("disaggregatedset-rollout-screener",),
        "the screener is left out: no endpoint is held back by it",
        experimental=True,
    ),
    *_have(Role.OTHER, {"destination-endpoint-served-verifier": _NONE}),
    *_lack(
        Role.OTHER,
        ("request-attribute-reporter",),
        "it is left out: nothing is reported by it",
    ),
]

KINDS: Mapping[str, PluginKind] = {kind.type: kind for kind in _KINDS}
"""The types of the llm-d router, whether the fleet has them or not."""


def unknown(type_: str, known: Iterable[str]) -> str:
    """The complaint about a type that is not among the known ones, with the nearest."""
    close = difflib.get_close_matches(type_, list(known), n=1, cutoff=0.5)
    nearest = f"; did you mean {close[0]}?" if close else ""
    return f"unknown plugin type {type_[:80]!r}{nearest}"

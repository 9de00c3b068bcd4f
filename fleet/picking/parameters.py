"""What each plugin type may be given: names and defaults as in the llm-d router.

Values that the router takes for "the default" (a threshold of 0, say) are the default here too.
"""

import re
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from fleet.model.labels import Requirement

_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Share = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]


def seconds(text: str) -> float:
    """A duration as Go writes it (`200ms`, `1m30s`, `0`) in seconds.

    Raises:
        ValueError: it is none.
    """
    if text in ("0", "-0", "+0"):
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"must be a duration such as 200ms or 1m30s, is {text[:40]!r}")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


class Parameters(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Base of all; alone: a type without parameters."""


Mention = tuple[str, str]
"""Where parameters name another plugin: the parameter, and the name."""


class PickerParameters(Parameters, frozen=True):
    """Pickers. More than one endpoint = a list of fallbacks, which not every gateway takes."""

    max_num_of_endpoints: int = 1


class PrefixCacheScorerParameters(Parameters, frozen=True):
    """prefix-cache-scorer."""

    prefix_match_info_producer_name: str = ""
    match_length_weight: Share = 0.0
    match_length_scale_tokens: Count = 8192

    def __post_init__(self) -> None:
        if self.match_length_weight > 0 and not self.match_length_scale_tokens:
            raise ValueError("matchLengthScaleTokens must be more than 0 with a matchLengthWeight")


class PrefixProducerParameters(Parameters, frozen=True):
    """approx-prefix-cache-producer."""

    auto_tune: bool = True
    block_size_tokens: Count = 16
    block_size: Count = 0
    max_prefix_blocks_to_match: Count = 2048
    max_prefix_tokens_to_match: Count = 131_072
    lru_capacity_per_server: Count = 31_250

    def __post_init__(self) -> None:
        if not (self.auto_tune or self.block_size_tokens or self.block_size):
            raise ValueError("blockSizeTokens must be more than 0 where autoTune is off")


class PrefixAffinityFilterParameters(Parameters, frozen=True):
    """prefix-cache-affinity-filter."""

    affinity_threshold: Share = 0.8
    exploration_probability: Share = 0.0
    max_ttft_penalty_ms: NotNegative = field(default=18_000.0, name="maxTTFTPenaltyMs")
    ttft_source: str = field(default="", name="ttftSource")
    peak_prefill_throughput: NotNegative = 15_928.0
    prefix_match_info_producer_name: str = ""
    latency_prediction_info_producer_name: str = ""
    in_flight_load_producer_name: str = ""


class LoadAwareParameters(Parameters, frozen=True):
    """load-aware-scorer."""

    threshold: int = 128


class TokenLoadParameters(Parameters, frozen=True):
    """token-load-scorer: 128 requests of 32 Ki tokens."""

    queue_threshold_tokens: int = 4_194_304
    in_flight_load_producer_name: str = ""


class ActiveRequestParameters(Parameters, frozen=True):
    """active-request-scorer; `request_timeout` is ignored, as in the router."""

    request_timeout: str = ""
    idle_threshold: int = 0
    max_busy_score: float | None = None
    in_flight_load_producer_name: str = ""


class ContextLengthParameters(Parameters, frozen=True):
    """context-length-aware."""

    label: Annotated[str, Meta(min_length=1)] = "llm-d.ai/context-length-range"
    enable_filtering: bool = False


class NoHitLruParameters(Parameters, frozen=True):
    """no-hit-lru-scorer."""

    prefix_plugin_type: str = ""
    prefix_plugin_name: str = ""
    prefix_match_info_producer_name: str = ""
    lru_size: int = field(default=1024, name="lruSize")


class EndpointHeader(Parameters, frozen=True):
    """The header that carries the endpoint's name to the client and back."""

    header: str = "x-session-token"


class SessionIdSource(Parameters, frozen=True):
    """One place where a client's own session id may stand."""

    header: str = ""
    attribute: str = ""
    producer: str = ""

    def __post_init__(self) -> None:
        if bool(self.header) == bool(self.attribute):
            raise ValueError("needs either a header or an attribute")


class SessionId(Parameters, frozen=True):
    """Where a client's own session id stands, by rank, and for how long it is remembered."""

    sources: tuple[SessionIdSource, ...] = ()
    eviction_ttl_seconds: NotNegative = 300.0
    eviction_sweep_seconds: NotNegative = 10.0


class SessionAffinityParameters(Parameters, frozen=True):
    """session-affinity-scorer and session-affinity-filter."""

    strategy: Literal["encoded_endpoint_header", "session_id"] = "encoded_endpoint_header"
    encoded_endpoint_header_config: EndpointHeader = EndpointHeader()
    session_id_config: SessionId = SessionId()
    profile_name: str = ""


class MatchExpression(Parameters, frozen=True):
    """One requirement of a label selector as Kubernetes writes it."""

    key: Annotated[str, Meta(min_length=1)]
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.values) != (self.operator in ("In", "NotIn")):
            wants = "needs values" if not self.values else "takes no values"
            raise ValueError(f"operator {self.operator} {wants}")

    def requirement(self) -> Requirement:
        """The same, ready to be asked."""
        values = frozenset(self.values) if self.values else None
        return Requirement(self.key, values, self.operator in ("NotIn", "DoesNotExist"))


class LabelSelectorParameters(Parameters, frozen=True):
    """label-selector-filter; without any requirement every endpoint stays."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[MatchExpression, ...] = ()


class ByLabelParameters(Parameters, frozen=True):
    """by-label."""

    label: Annotated[str, Meta(min_length=1)]
    valid_values: tuple[str, ...] = ()
    allows_no_label: bool = False

    def __post_init__(self) -> None:
        if not self.valid_values and not self.allows_no_label:
            raise ValueError("needs validValues, or allowsNoLabel: true")


class Condition(Parameters, frozen=True):
    """A bound of the utilization-filter."""

    metric: Literal["active-requests", "running-requests", "waiting-queue", "kv-cache-utilization"]
    max_value: NotNegative

    def __post_init__(self) -> None:
        if self.metric == "kv-cache-utilization" and self.max_value > 1:
            raise ValueError("maxValue of kv-cache-utilization is a share: at most 1")


class UtilizationFilterParameters(Parameters, frozen=True):
    """utilization-filter."""

    conditions: Annotated[tuple[Condition, ...], Meta(min_length=1)]
    fallback_on_empty: bool = False
    in_flight_load_producer_name: str = ""


class UtilizationDetectorParameters(Parameters, frozen=True):
    """utilization-detector."""

    queue_depth_threshold: Annotated[int, Meta(ge=1)] = 5
    kv_cache_util_threshold: Annotated[float, Meta(gt=0, le=1)] = 0.8
    metrics_staleness_threshold: str = "200ms"
    headroom: NotNegative = 0.0

    def __post_init__(self) -> None:
        if seconds(self.metrics_staleness_threshold) <= 0:
            raise ValueError("metricsStalenessThreshold must be more than 0")


class ConcurrencyDetectorParameters(Parameters, frozen=True):
    """concurrency-detector."""

    max_concurrency: Positive = 100
    headroom: NotNegative = 0.0
    concurrency_mode: Literal["requests", "tokens", "hybrid"] = "requests"
    max_token_concurrency: Positive = 1_000_000
    in_flight_load_producer_name: str = ""


class DataParallelParameters(Parameters, frozen=True):
    """data-parallel-profile-handler."""

    primary_port: Annotated[int, Meta(ge=0, le=65_535)] = 8000


class HeaderProfileParameters(Parameters, frozen=True):
    """header-profile-handler."""

    header_name: str = "epp-profile"
    default_profile: str = "decode"


class DisaggProfiles(Parameters, frozen=True):
    """Names of profiles."""

    decode: str = "decode"
    prefill: str = "prefill"
    encode: str = "encode"


class DisaggDeciders(Parameters, frozen=True):
    """Names of the plugins that decide; none = that part is never split off."""

    prefill: str = ""
    encode: str = ""


class DisaggParameters(Parameters, frozen=True):
    """disagg-profile-handler, by its nested names or the older flat ones.

    With `prefill-first` prefill is always split off, so that no decider may be asked about it.
    """

    stage_order: Literal["", "decode-first", "prefill-first"] = ""
    profiles: DisaggProfiles = DisaggProfiles()
    deciders: DisaggDeciders = DisaggDeciders()
    decode_profile: str = ""
    prefill_profile: str = ""
    encode_profile: str = ""
    decider_plugin_name: str = ""
    prefill_decider_plugin_name: str = ""
    encode_decider_plugin_name: str = ""

    def __post_init__(self) -> None:
        nested = self.profiles != DisaggProfiles() or self.deciders != DisaggDeciders()
        flat = (
            self.decode_profile,
            self.prefill_profile,
            self.encode_profile,
            self.decider_plugin_name,
            self.prefill_decider_plugin_name,
            self.encode_decider_plugin_name,
        )
        if nested and any(flat):
            raise ValueError("write either profiles and deciders, or the older flat names")
        if self.stage_order == "prefill-first" and self.prefill_decider:
            raise ValueError("no prefill decider is asked where stageOrder is prefill-first")

    @property
    def prefill_decider(self) -> str:
        """The decider's name by whichever form."""
        flat = self.prefill_decider_plugin_name or self.decider_plugin_name
        return self.deciders.prefill or flat


class PdParameters(Parameters, frozen=True):
    """pd-profile-handler; who knows the prefixes is the decider's affair."""

    decode_profile: str = "decode"
    prefill_profile: str = "prefill"
    decider_plugin_name: str = ""
    primary_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    prefix_plugin_type: str = ""
    prefix_plugin_name: str = ""
    prefix_match_info_producer_name: str = ""


class PrefixDeciderParameters(Parameters, frozen=True):
    """prefix-based-pd-decider; 0 uncached tokens = never split, 0 of prompt = any length."""

    non_cached_tokens: Annotated[int, Meta(ge=0)] = 0
    prompt_tokens: Annotated[int, Meta(ge=0)] = 0


class AnyParameters(Struct, frozen=True):
    """Of a type that is left out here: whatever is said of it is not looked at."""


def producers_named(parameters: Any) -> list[Mention]:
    """Prefix producers that parameters name, and must find."""
    name = getattr(parameters, "prefix_match_info_producer_name", "")
    return [("prefixMatchInfoProducerName", name)] if name else []


def deciders_named(parameters: Any) -> list[Mention]:
    """Deciders that parameters name, and must find."""
    if isinstance(parameters, PdParameters):
        found = [("deciderPluginName", parameters.decider_plugin_name)]
    elif isinstance(parameters, DisaggParameters):
        found = [
            ("deciders.prefill", parameters.deciders.prefill),
            ("deciders.encode", parameters.deciders.encode),
            ("deciderPluginName", parameters.decider_plugin_name),
            ("prefillDeciderPluginName", parameters.prefill_decider_plugin_name),
            ("encodeDeciderPluginName", parameters.encode_decider_plugin_name),
        ]
    else:
        found = []
    return [mention for mention in found if mention[1]]


def shown(parameters: Any) -> dict[str, Any]:
    """Parameters by the names that configurations use, without those at "" or empty."""
    found: dict[str, Any] = {}
    if isinstance(parameters, Struct):
        names = zip(parameters.__struct_fields__, parameters.__struct_encode_fields__, strict=True)
        for attribute, name in names:
            value = getattr(parameters, attribute)
            if isinstance(value, Struct):
                value = shown(value)
            elif isinstance(value, tuple):
                value = [shown(each) if isinstance(each, Struct) else each for each in value]
            if value not in ("", None, {}, []):
                found[name] = value
    return found

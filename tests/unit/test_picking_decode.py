"""EndpointPickerConfig texts: what they mean, and what is wrong with them."""

import pytest

from fleet.errors import SettingsError
from fleet.picking import DEFAULT, PickerConfig, decode
from fleet.picking.parameters import (
    LoadAwareParameters,
    PickerParameters,
    PrefixCacheScorerParameters,
    seconds,
)

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def read(body: str, *, experimental: bool = False) -> PickerConfig:
    return decode(HEAD + body, name="mine", experimental=experimental)


def complaints(text: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        decode(text, name="mine")
    return caught.value.problems


def test_the_routers_own_default_written_out() -> None:
    """What stands in its documentation as the default; weights as there, the rest filled in."""
    config = read("""
plugins:
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: metrics-data-source
- type: core-metrics-extractor
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: kv-cache-utilization-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
dataLayer:
  sources:
  - pluginRef: metrics-data-source
    extractors: [{pluginRef: core-metrics-extractor}]
""")
    assert config.profiles[0].plugins == (
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("prefix-cache-scorer", 3.0),
        ("max-score-picker", 1.0),
    )
    assert config.handler == "single-profile-handler"
    assert config.detector == "utilization-detector"
    assert config.warnings == ()


def test_a_configuration_may_say_the_response_phase() -> None:
    """By the annotation that pools have too."""
    annotated = "metadata: {annotations: {epp-fleet.dev/response-phase: %s}}\n"
    config = read(annotated % "detach")
    assert (config.response_phase, config.warnings) == ("detach", ())
    assert read("metadata: {name: x}\n").response_phase == ""
    assert "metadata: is not looked at" in read("metadata: {name: x}\n").warnings[0]
    assert complaints(HEAD + annotated % "dettach") == (
        "metadata.annotations.epp-fleet.dev/response-phase: must be one of track, detach, drain, "
        'is "dettach"',
    )


@pytest.mark.parametrize("metadata", ["3", "[]", "{annotations: 4}", "{annotations: [a]}", "x"])
def test_odd_metadata_costs_a_warning_alone(metadata: str) -> None:
    config = read(f"metadata: {metadata}\n")
    assert config.response_phase == ""
    assert config.warnings[0].startswith("metadata: is not looked at")


def test_nothing_but_plugins_makes_one_profile_of_them() -> None:
    """Every filter, scorer and picker, at weight 1, in the order written."""
    config = read("plugins: [{type: random-picker}, {type: queue-scorer, name: q}]")
    assert [(p.name, p.plugins) for p in config.profiles] == [
        ("default", (("random-picker", 1.0), ("q", 1.0)))
    ]


def test_a_profile_without_a_picker_takes_the_first_listed() -> None:
    """As the router, which takes any."""
    config = read("""
plugins: [{type: queue-scorer}, {type: weighted-random-picker, name: w}]
schedulingProfiles: [{name: p, plugins: [{pluginRef: queue-scorer}]}]
""")
    assert config.profiles[0].plugins == (("queue-scorer", 1.0), ("w", 1.0))


def test_parameters_are_decoded_with_their_defaults() -> None:
    config = read("""
plugins:
- {type: load-aware-scorer, name: a}
- {type: load-aware-scorer, name: b, parameters: {threshold: 64}}
- {type: max-score-picker, parameters: {maxNumOfEndpoints: 3}}
""")
    assert config.plugins["a"].parameters == LoadAwareParameters(threshold=128)
    assert config.plugins["b"].parameters == LoadAwareParameters(threshold=64)
    assert config.plugins["max-score-picker"].parameters == PickerParameters(3)


def test_the_older_api_version_and_deprecated_fields_are_taken_and_said() -> None:
    config = decode(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n"
        "plugins: [{type: concurrency-detector}, {type: openai-parser}]\n"
        "saturationDetector: {pluginRef: concurrency-detector}\n"
        "parser: {pluginRef: openai-parser}\n",
        name="old",
    )
    assert config.detector == "concurrency-detector"
    assert config.parsers == ("openai-parser",)
    assert [warning.partition(":")[0] for warning in config.warnings] == [
        "apiVersion",
        "saturationDetector",
        "parser",
    ]


def test_each_complaint_names_its_path_at_once() -> None:
    """All of them in one go, with what must stand there and what does."""
    text = (
        HEAD.replace("llm-d.ai/v1alpha1", "v1")
        + """
featureGates: [flowControll, flowControl=yes]
plugins:
- {type: queue-scorer}
- {type: que-scorer}
- {type: load-aware-scorer, parameters: {treshold: 3}}
- {type: concurrency-detector, parameters: {maxConcurrency: 0}}
- {name: nameless}
- {type: queue-scorer}
schedulingProfiles:
- name: p
  plugins:
  - {pluginRef: queue-scorer}
  - {pluginRef: queue-scorer, weight: x}
  - {pluginRef: missing}
  - {pluginRef: queue-scorer, weight: -1}
  - {pluginRef: single}
  extra: 1
- {name: p}
"""
    )
    assert complaints(text) == (
        'apiVersion: must be llm-d.ai/v1alpha1 or inference.networking.x-k8s.io/v1alpha1, is "v1"',
        'featureGates[0]: unknown gate "flowControll"; known: flowControl, '
        "haPopulateNonLeaderDatastore",
        "featureGates[1]: must be flowControl, flowControl=true or flowControl=false, "
        'is "flowControl=yes"',
        "plugins[1].type: unknown plugin type 'que-scorer'; did you mean queue-scorer?",
        "plugins[2].parameters.treshold: unknown field; did you mean threshold?",
        "plugins[3].parameters.maxConcurrency: must be a whole number >= 1, is 0",
        "plugins[4].type: is missing",
        'plugins[5].name: another plugin is called "queue-scorer" already',
        "schedulingProfiles[0].extra: unknown field; known: name, plugins",
    )


def test_an_unknown_field_hides_nothing() -> None:
    """Unknown fields of the document, and what is wrong further down, in one go."""
    assert complaints(HEAD + "foo: 1\nplugin: []\nplugins:\n- type: que-scorer\n") == (
        "foo: unknown field; known: apiVersion, kind, featureGates, plugins, schedulingProfiles, "
        "dataLayer, flowControl, requestHandler, saturationDetector, parser, metadata",
        "plugin: unknown field; did you mean plugins?",
        "plugins[0].type: unknown plugin type 'que-scorer'; did you mean queue-scorer?",
    )


def test_a_profiles_mentions_are_checked() -> None:
    found = complaints(
        HEAD
        + """
plugins: [{type: queue-scorer}, {type: single-profile-handler, name: single}]
schedulingProfiles:
- name: p
  plugins:
  - {pluginRef: queue-scorer}
  - {pluginRef: queue-scorer, weight: x}
  - {pluginRef: missing}
  - {pluginRef: queue-scorer, weight: -1}
- {name: p}
"""
    )
    assert found == (
        'schedulingProfiles[0].plugins[1].weight: must be a number, is "x"',
        'schedulingProfiles[0].plugins[2].pluginRef: no plugin is called "missing"; there are: '
        "queue-scorer, single",
        "schedulingProfiles[0].plugins[3].weight: must be a number from 0 to 1000000, is -1.0",
        'schedulingProfiles[1].name: another profile is called "p" already',
    )


@pytest.mark.parametrize(("weight", "shown"), [(".nan", "nan"), (".inf", "inf"), ("1e7", "1e7")])
def test_a_weight_that_no_sum_can_be_made_of(weight: str, shown: str) -> None:
    """With NaN or infinity no two endpoints compare, and the picker fails at each pick."""
    mention = f"{{pluginRef: queue-scorer, weight: {weight}}}"
    found = complaints(
        HEAD
        + f"""
plugins: [{{type: queue-scorer}}]
schedulingProfiles: [{{name: p, plugins: [{mention}]}}]
"""
    )
    assert len(found) == 1
    assert found[0].startswith("schedulingProfiles[0].plugins[0].weight: must be a number")
    assert shown in found[0]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "must be one document, has 0"),
        ("- a", "must be a mapping, is a list"),
        (HEAD + "plugin: []", "plugin: unknown field; did you mean plugins?"),
        (HEAD + "plugins: {}", "plugins: must be a list, is a mapping"),
        (HEAD + "kind: x", "line 3: the key 'kind' is given twice; keep one"),
        (HEAD + "---\n" + HEAD, "must be one document, has 2"),
        (
            HEAD + "plugins: [{type: single-profile-handler}, {type: disagg-profile-handler}]",
            "plugins: there may be one profile handler; there are single-profile-handler, "
            "disagg-profile-handler",
        ),
        (
            HEAD + "plugins: [{type: random-picker}, {type: max-score-picker}]",
            'schedulingProfiles: "default" may have one picker; it has random-picker, '
            "max-score-picker",
        ),
        (
            HEAD + "schedulingProfiles: [{name: a}, {name: b}]",
            "plugins: several schedulingProfiles need a profile handler, and there is none",
        ),
        (
            HEAD + "plugins: [{type: utilization-filter, parameters: {conditions: []}}]",
            "plugins[0].type: utilization-filter is experimental; set picking.allow_experimental "
            "to take such plugins",
        ),
        (
            HEAD + "plugins: [{type: queue-scorer}]\nsaturationDetector: {pluginRef: queue-scorer}",
            'saturationDetector.pluginRef: "queue-scorer" (queue-scorer) is no saturation detector',
        ),
        (
            HEAD + "plugins: [{type: utilization-detector, parameters: "
            "{metricsStalenessThreshold: soon}}]",
            "plugins[0].parameters: must be a duration such as 200ms or 1m30s, is 'soon'",
        ),
        (
            HEAD + "plugins: [{type: disagg-profile-handler, parameters: "
            "{deciders: {prefill: x}}}]",
            'plugins[0].parameters.deciders.prefill: no plugin is called "x"; there are: '
            "disagg-profile-handler",
        ),
        (
            HEAD + "plugins: [{type: queue-scorer}, {type: pd-profile-handler, parameters: "
            "{deciderPluginName: queue-scorer}}]",
            'plugins[1].parameters.deciderPluginName: "queue-scorer" is no decider',
        ),
        (
            HEAD + "plugins: [{type: queue-scorer}, {type: prefix-cache-scorer, parameters: "
            "{prefixMatchInfoProducerName: queue-scorer}}]",
            'plugins[1].parameters.prefixMatchInfoProducerName: "queue-scorer" is no producer',
        ),
        (
            HEAD + "plugins: [{type: queue-scorer, parameters: {a: 1}}]",
            "plugins[0].parameters.a: unknown field; known: none",
        ),
    ],
)
def test_what_is_wrong(text: str, complaint: str) -> None:
    assert complaint in complaints(text)


def test_experimental_plugins_where_they_are_allowed() -> None:
    config = read("plugins: [{type: session-affinity-filter}]", experimental=True)
    assert config.profiles[0].plugins[0] == ("session-affinity-filter", 1.0)


def test_what_is_said_and_not_done_is_said_back() -> None:
    """A line for each; never silently ignored."""
    config = read("""
featureGates: [flowControl]
plugins:
- {type: latency-scorer}
- {type: inflight-load-producer, parameters: {a: 1}}
- {type: by-label, parameters: {label: a, allowsNoLabel: true}}
- {type: active-request-scorer, parameters: {requestTimeout: 2m}}
flowControl: {maxRequests: 1k, priorityBands: [{priority: 1}]}
dataLayer: {injectDefaults: false, discovery: {pluginRef: x}}
""")
    begins = [
        "featureGates: flow control is not available",
        "flowControl.maxRequests: has no effect",
        "flowControl.priorityBands: has no effect",
        "plugins[0] (latency-scorer): latency-scorer is not available: the scorer is left out",
        "plugins[1] (inflight-load-producer): parameters of inflight-load-producer have no effect",
        "plugins[2] (by-label): by-label is deprecated",
        "plugins[3] (active-request-scorer): requestTimeout has no effect",
        "dataLayer.injectDefaults: has no effect",
        "dataLayer.discovery: has no effect",
    ]
    assert len(config.warnings) == len(begins)
    for warning, begin in zip(config.warnings, begins, strict=True):
        assert warning.startswith(begin)
    assert config.plugins["latency-scorer"].left_out


def test_a_producer_that_is_left_out_is_asked_for_in_vain() -> None:
    """Its scorer asks the approximate one, and works."""
    config = read("""
plugins:
- {type: precise-prefix-cache-producer, parameters: {tokenProcessorConfig: {blockSize: 5}}}
- type: prefix-cache-scorer
  parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}
""")
    assert config.plugins["prefix-cache-scorer"].parameters == PrefixCacheScorerParameters()
    assert len(config.warnings) == 1
    assert "asks the approximate prefix cache instead" in config.warnings[0]


def test_what_no_profile_uses_is_left_out_of_it() -> None:
    """The router takes such a mention without a word."""
    config = read("""
plugins: [{type: queue-scorer}, {type: openai-parser}]
schedulingProfiles:
- {name: p, plugins: [{pluginRef: openai-parser}, {pluginRef: queue-scorer}]}
""")
    assert [name for name, _ in config.profiles[0].plugins] == ["queue-scorer", "max-score-picker"]
    assert config.warnings == (
        'schedulingProfiles[0].plugins[0].pluginRef: "openai-parser" is a parser, which no profile '
        "uses: profiles have filters, scorers and a picker",
    )


def test_the_default_is_the_routers_and_requests_in_flight() -> None:
    """The router's weights 2, 2, 3; in flight breaks what would be ties."""
    assert DEFAULT.profiles[0].plugins == (
        ("queue-scorer", 2.0),
        ("kv-cache-utilization-scorer", 2.0),
        ("prefix-cache-scorer", 3.0),
        ("active-request-scorer", 1.0),
        ("max-score-picker", 1.0),
    )


@pytest.mark.parametrize(
    ("text", "value"), [("200ms", 0.2), ("1m30s", 90.0), ("0", 0.0), ("1.5h", 5400.0)]
)
def test_durations(text: str, value: float) -> None:
    assert seconds(text) == pytest.approx(value)

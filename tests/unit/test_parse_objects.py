"""Manifests to facts: what is accepted, what is refused, and in which words."""

import re
from typing import Any

import pytest

from fleet.errors import ManifestError
from fleet.model import FailureMode, GroupKey, Pod, Pool, PoolRef, Service
from fleet.sources.contract import Kind, Object, ObjectKey
from fleet.sources.identify import Identity, derived_uid, identify
from fleet.sources.parse import expand, parse
from tests import manifest_texts as texts


def read(raw: dict[str, Any]) -> Object:
    identity = identify(raw)
    assert identity is not None
    return parse(identity, raw)  # type: ignore[arg-type]


def read_pool(raw: dict[str, Any]) -> Pool:
    found = read(raw)
    assert isinstance(found, Pool)
    return found


def read_pod(raw: dict[str, Any]) -> Pod:
    found = read(raw)
    assert isinstance(found, Pod)
    return found


def test_a_pool_with_everything_is_read_whole() -> None:
    """Every field that placing and picking need is taken over, and the given uid."""
    raw = texts.pool(
        ports=(8000, 8001),
        labels={"app": "llama", "tier": "gold"},
        appProtocol="kubernetes.io/h2c",
        endpointPickerRef={
            "group": "",
            "kind": "Service",
            "name": "shared-epp",
            "port": {"number": 9102},
            "failureMode": "FailOpen",
        },
    )
    raw["metadata"] |= {"uid": "u-1", "annotations": {"epp-fleet.dev/profile": "fast"}}
    assert read_pool(raw) == Pool(
        ref=PoolRef("ns1", "pool-a"),
        uid="u-1",
        selector={"app": "llama", "tier": "gold"},
        target_ports=(8000, 8001),
        group=GroupKey("ns1", "shared-epp", 9102),
        failure_mode=FailureMode.OPEN,
        app_protocol="kubernetes.io/h2c",
        annotations={"epp-fleet.dev/profile": "fast"},
    )


def test_an_old_pool_has_the_old_defaults() -> None:
    """v1alpha2: a flat selector, one port, and picker port 9002 when none is given."""
    found = read_pool(texts.old_pool())
    assert found.selector == {"app": "pool-a"}
    assert found.target_ports == (8000,)
    assert found.group == GroupKey("ns1", "pool-a-epp", 9002)
    assert found.failure_mode is FailureMode.CLOSE


def test_an_old_pool_may_name_its_picker_port() -> None:
    """`extensionRef.portNumber` overrides the default."""
    found = read_pool(texts.old_pool(extensionRef={"name": "epp", "portNumber": 9003}))
    assert found.group == GroupKey("ns1", "epp", 9003)


@pytest.mark.parametrize(
    "raw", [texts.pool(endpointPickerRef=None), texts.old_pool(extensionRef=None)]
)
def test_a_pool_without_a_picker_is_a_pool_without_a_group(raw: dict[str, Any]) -> None:
    """agentgateway/agentgateway#1719: optional since v1.5, and no error."""
    assert read_pool(raw).group is None


@pytest.mark.parametrize("selector", [{}, {"matchLabels": {}}, {"matchLabels": None}])
def test_an_empty_selector_selects_nothing(selector: dict[str, Any]) -> None:
    """ai-dynamo/dynamo#11072: never every pod of the namespace."""
    found = read_pool(texts.pool(selector=selector))
    assert found.selector == {}
    assert not found.selects(read_pod(texts.pod()))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"targetPorts": []},
            "spec.targetPorts: no port; give 1 to 8 items `- number: 8000`",
        ),
        (
            {"targetPorts": [{"number": n} for n in range(8000, 8009)]},
            "spec.targetPorts: 9 ports; give at most 8",
        ),
        (
            {"targetPorts": [{"number": 8000}, {"number": 0}]},
            "spec.targetPorts[1].number: 0 is no port; give a number from 1 to 65535",
        ),
        (
            {"targetPorts": [{"number": 70000}]},
            "spec.targetPorts[0].number: 70000 is no port; give a number from 1 to 65535",
        ),
        (
            {"targetPorts": [{"number": "8000"}]},
            "spec.targetPorts[0].number: '8000' is no number; give it without quotes",
        ),
        (
            {"targetPorts": [{"number": True}]},
            "spec.targetPorts[0].number: True is no number; give it without quotes",
        ),
        (
            {"targetPorts": [{"number": 8000}, {"number": 8000}]},
            "spec.targetPorts[1].number: 8000 occurs twice; give each port once",
        ),
        ({"targetPorts": {"number": 1}}, "spec.targetPorts: a mapping is no list; give `- ` items"),
        (
            {"targetPorts": [8000]},
            "spec.targetPorts[0]: 8000 is no mapping; give `key: value` lines",
        ),
        ({"selector": None}, "spec.selector: missing; give `matchLabels`"),
        (
            {"selector": {"app": "x"}},
            "spec.selector: 'app' is unknown here; put the labels under `matchLabels`",
        ),
        (
            {"selector": {"matchLabels": {"version": 1.0}}},
            "spec.selector.matchLabels[version]: 1.0 is no string; put it in quotes",
        ),
        (
            {"selector": {"matchLabels": {"app": "not a label"}}},
            "spec.selector.matchLabels: 'app: not a label' is no label; "
            "use at most 63 letters, digits, '-', '_' and '.'",
        ),
        (
            {"selector": {"matchLabels": {f"k{n}": "v" for n in range(65)}}},
            "spec.selector.matchLabels: 65 labels; give at most 64",
        ),
        (
            {"endpointPickerRef": {"name": "epp"}},
            "spec.endpointPickerRef.port.number: missing; give a port number from 1 to 65535",
        ),
        (
            {"endpointPickerRef": {"port": {"number": 9002}}},
            "spec.endpointPickerRef.name: missing; it is required",
        ),
        (
            {"endpointPickerRef": {"name": "a.b", "port": {"number": 9002}}},
            "spec.endpointPickerRef.name: 'a.b' is no Service's name; "
            "use at most 63 of a-z, 0-9 and '-'",
        ),
        (
            {"endpointPickerRef": {"name": "epp", "kind": "Deployment"}},
            "spec.endpointPickerRef.kind: 'Deployment' cannot be served; refer to a core Service",
        ),
        (
            {"endpointPickerRef": {"name": "epp", "group": "x.io"}},
            "spec.endpointPickerRef.group: 'x.io' cannot be served; refer to a core Service",
        ),
        (
            {
                "endpointPickerRef": {
                    "name": "epp",
                    "port": {"number": 9002},
                    "failureMode": "FailMaybe",
                }
            },
            "spec.endpointPickerRef.failureMode: 'FailMaybe' is unknown; use FailOpen or FailClose",
        ),
        (
            {"appProtocol": "grpc"},
            "spec.appProtocol: 'grpc' is unknown; use http or kubernetes.io/h2c",
        ),
    ],
)
def test_each_defect_of_a_pool_has_its_own_message(changes: dict[str, Any], message: str) -> None:
    """ai-dynamo/dynamo#11072: object, field path, fault and remedy, one message per defect."""
    with pytest.raises(ManifestError) as caught:
        read(texts.pool(**changes))
    assert str(caught.value) == f"InferencePool ns1/pool-a: {message}"


def test_a_null_spec_is_refused_by_name() -> None:
    """kubernetes-sigs/gateway-api-inference-extension#1164: a partial object is no crash."""
    with pytest.raises(ManifestError, match=r"^InferencePool ns1/pool-a: spec: missing"):
        read({**texts.pool(), "spec": None})


def test_unknown_fields_are_ignored() -> None:
    """As an API server prunes them."""
    assert read(texts.pool(futureField={"x": 1})) == read(texts.pool())


def test_the_missing_namespace_is_default() -> None:
    """As kubectl has it."""
    raw = texts.pool()
    del raw["metadata"]["namespace"]
    assert read_pool(raw).ref == PoolRef("default", "pool-a")


def test_a_missing_uid_is_derived_from_kind_and_name() -> None:
    """The same in every process and at every reading; another name or kind has another."""
    expected = derived_uid("InferencePool", "ns1", "pool-a")
    assert expected == "6dcedc4b-135a-5d30-a1b0-1ed0651939d0"
    assert read_pool(texts.pool()).uid == expected
    assert len({expected, derived_uid("Pod", "ns1", "pool-a"), derived_uid("Pod", "ns1", "b")}) == 3


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({"name": "Pool_A"}, "metadata.name"),
        ({"name": ""}, "metadata.name"),
        ({"name": "x" * 254}, "metadata.name"),
        ({}, "metadata.name"),
        ({"name": 5}, "metadata.name"),
        ({"name": "ok", "namespace": "a.b"}, "metadata.namespace"),
        ({"name": "ok", "namespace": "../x"}, "metadata.namespace"),
        ({"name": "ok", "namespace": ["x"]}, "metadata.namespace"),
    ],
)
def test_names_are_dns_names(metadata: dict[str, Any], path: str) -> None:
    """What cannot be a name in a cluster is none here: names become file names and labels."""
    with pytest.raises(ManifestError, match=rf": {path}: "):
        identify({**texts.pool(), "metadata": metadata})


@pytest.mark.parametrize(
    "raw",
    [
        {"apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferenceModel"},
        {"apiVersion": "other.example/v1", "kind": "InferenceObjective", "metadata": {}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}},
        {"apiVersion": "other.example/v1", "kind": "InferencePool", "metadata": {"name": "p"}},
        {"apiVersion": "metrics.k8s.io/v1", "kind": "Pod", "metadata": {"name": "p"}},
    ],
)
def test_other_kinds_are_of_no_interest(raw: dict[str, Any]) -> None:
    """A folder may hold whatever a cluster holds."""
    assert identify(raw) is None


@pytest.mark.parametrize(
    ("raw", "api", "meant"),
    [
        (texts.pool(), "inference.networking.k8s.io/v2", "inference.networking.k8s.io/v1"),
        (texts.pool(), "llm-d.ai/v1", "inference.networking.k8s.io/v1"),
        (texts.objective(), "llm-d.ai/v1", "llm-d.ai/v1alpha2"),
        (texts.rewrite(), "inference.networking.k8s.io/v1", "llm-d.ai/v1alpha2"),
    ],
)
def test_an_unknown_version_is_refused(raw: dict[str, Any], api: str, meant: str) -> None:
    """Silence would leave the user without the object and without a reason."""
    message = f"apiVersion: '{api}' is unknown; use {meant} (or the older inference.networking.x-"
    with pytest.raises(ManifestError, match=re.escape(message)):
        identify({**raw, "apiVersion": api})


@pytest.mark.parametrize("raw", ["text", 5, ["x"]])
def test_what_is_no_object_is_refused(raw: object) -> None:
    """A stray scalar or list in a file."""
    with pytest.raises(ManifestError, match="is no object; give apiVersion, kind and metadata"):
        identify(raw)


def test_v1_outranks_the_older_version() -> None:
    """Both name one object; the rank says which wins."""
    key = ObjectKey("ns1", "pool-a")
    assert identify(texts.pool()) == Identity(Kind.POOL, key, 0)
    assert identify(texts.old_pool()) == Identity(Kind.POOL, key, 1)


def test_a_ready_pod_is_read_whole() -> None:
    """Labels, address, readiness."""
    assert read_pod(texts.pod()) == Pod(
        namespace="ns1",
        name="pod-0",
        uid=derived_uid("Pod", "ns1", "pod-0"),
        labels={"app": "pool-a"},
        ip="10.0.0.1",
        ready=True,
    )


@pytest.mark.parametrize(
    "raw",
    [
        texts.pod(ready="False"),
        texts.pod(ready="Unknown"),
        texts.pod(phase="Failed"),
        texts.pod(phase="Succeeded"),
        texts.pod(ip=None),
        texts.pod(ip=""),
        texts.pod(ip="10.0.0.300"),
        texts.pod(ip="fe80::1%eth0"),
        texts.pod(ip=5),
        {**texts.pod(), "status": None},
        {**texts.pod(), "status": {}},
        {**texts.pod(), "status": []},
        {**texts.pod(), "status": {"podIP": "10.0.0.1", "conditions": "Ready"}},
        {**texts.pod(), "status": {"podIP": "10.0.0.1", "conditions": [None, {"type": "Ready"}]}},
        {
            **texts.pod(),
            "metadata": {"name": "pod-0", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        },
    ],
)
def test_a_pod_that_may_not_be_picked_is_not_ready(raw: dict[str, Any]) -> None:
    """vllm-project/production-stack#1091: also evicted ones and those without an address."""
    assert read_pod(raw).ready is False


def test_ipv6_addresses_are_written_in_one_way() -> None:
    """So that equal addresses compare equal."""
    assert read_pod(texts.pod(ip="FD00:0::0:1")).ip == "fd00::1"


def test_a_service_is_read_whole() -> None:
    """Ports by number with their names, type and selector."""
    raw = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "epp", "namespace": "ns1", "uid": "u", "labels": {"a": "b"}},
        "spec": {"ports": [{"port": 9002, "name": "grpc"}, {"port": 9003}], "selector": {"x": "y"}},
    }
    assert read(raw) == Service(
        "ns1", "epp", "u", {"x": "y"}, "ClusterIP", {9002: "grpc", 9003: ""}, {"a": "b"}
    )


def test_lists_are_expanded_one_level() -> None:
    """`List` as kubectl writes it; typed lists give kind and version to bare items."""
    assert expand(None) == []
    assert expand(texts.pod()) == [texts.pod()]
    assert expand({"kind": "List", "apiVersion": "v1", "items": [1, None]}) == [1, None]
    assert expand({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {}}]}) == [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}}
    ]
    with pytest.raises(ManifestError, match="PodList: items: 'x' is no list"):
        expand({"kind": "PodList", "apiVersion": "v1", "items": "x"})


@pytest.mark.parametrize(
    ("api", "kind", "meant"),
    [
        ("inference.networking.k8s.io/v1", "InferencePol", "InferencePool"),
        ("inference.networking.x-k8s.io/v1alpha2", "inferencepool", "InferencePool"),
        ("llm-d.ai/v1alpha2", "InferenceObjectiv", "InferenceObjective"),
    ],
)
def test_a_slip_in_a_kind_of_the_fields_own_groups_is_told(api: str, kind: str, meant: str) -> None:
    """Instead of a pool that nobody ever sees."""
    with pytest.raises(ManifestError, match=f"kind: '{kind}' is unknown; use {meant}"):
        identify({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}})


def test_other_kinds_are_left_alone() -> None:
    """Of the field's own groups, and of any other."""
    for api, kind in [
        ("inference.networking.x-k8s.io/v1alpha1", "InferencePoolImport"),
        ("apps/v1", "Deploymnt"),
    ]:
        assert identify({"apiVersion": api, "kind": kind, "metadata": {"name": "a"}}) is None

"""docs/gateways.md and its samples: what they name exists, fits together, is read as it says."""

import functools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from fleet.authority import AuthorityIndex
from fleet.kube.contract import Raw
from fleet.model import GroupKey, Pool, group_pools
from fleet.settings.fields import all_fields
from fleet.sources.identify import identify
from fleet.sources.parse import parse
from tests.kustomize import DEPLOY, ROOT

TEXT = (ROOT / "docs" / "gateways.md").read_text()
SAMPLES = DEPLOY / "samples" / "gateways"
POOL_CRD = ROOT / "tests" / "data" / "crds" / "inference.networking.k8s.io_inferencepools.yaml"
POOL_KIND = "inference.networking.k8s.io/v1", "InferencePool"
GATEWAYS = sorted(each.name for each in SAMPLES.iterdir() if each.is_dir())
AUTHORITIES = {
    "Istio": "outbound|{port}||{service}.{namespace}.svc.cluster.local",
    "Envoy AI Gateway": "{service}.{namespace}.svc:{port}",
    "kgateway": "{service}.{namespace}.svc:{port}",
    "agentgateway": "{service}.{namespace}.svc.cluster.local:{port}",
    "NGINX Gateway Fabric": "{service}.{namespace}:{port}",
    "an Envoy without an authority": "envoy.clusters.endpointpicker_{pool}_{namespace}_ext_proc",
}
"""Each gateway's, as its source makes them."""


def documents(path: Path) -> list[Raw]:
    return [dict(each) for each in yaml.safe_load_all(path.read_text()) if each]


def everything() -> Iterator[tuple[Path, Raw]]:
    for path in sorted(SAMPLES.rglob("*.yaml")):
        for each in documents(path):
            yield path, each


def pools(name: str) -> list[Pool]:
    """The pools of a sample, as the fleet reads them."""
    found = []
    for raw in yaml.safe_load_all((SAMPLES / name).read_text()):
        identity = identify(raw)
        if identity is not None:
            pool = parse(identity, raw)
            assert isinstance(pool, Pool)
            found.append(pool)
    assert len(found) == 2
    return found


def group(pool: Pool) -> GroupKey:
    assert pool.group is not None
    return pool.group


@functools.cache
def schemas(*paths: Path) -> dict[tuple[str, str], Raw]:
    """By apiVersion and kind."""
    found: dict[tuple[str, str], Raw] = {}
    for path in paths:
        for each in documents(path):
            if each["kind"] != "CustomResourceDefinition":
                continue
            spec = each["spec"]
            for version in spec["versions"]:
                kind = f"{spec['group']}/{version['name']}", spec["names"]["kind"]
                found[kind] = version["schema"]["openAPIV3Schema"]
    return found


def unknown(schema: Raw, value: Any, path: str = "") -> Iterator[str]:
    """Fields that the API server would drop."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if isinstance(value, dict):
        for key, each in value.items():
            if path == "" and key in ("apiVersion", "kind", "metadata"):
                continue
            more = schema.get("additionalProperties")
            below = schema.get("properties", {}).get(key, more)
            if below is None:
                yield f"{path}.{key}"
            elif isinstance(below, dict):
                yield from unknown(below, each, f"{path}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from unknown(schema.get("items", {}), each, f"{path}[]")


def assert_valid(schema: Raw, raw: Raw) -> None:
    problems = [each.message for each in jsonschema.Draft202012Validator(schema).iter_errors(raw)]
    assert not [*problems, *unknown(schema, raw)], raw["metadata"]["name"]


def test_a_field_that_does_not_exist_is_found() -> None:
    """The check itself."""
    schema = schemas(POOL_CRD)[POOL_KIND]
    raw = documents(SAMPLES / "tenant.yaml")[0]
    assert_valid(schema, raw)
    raw["spec"]["endpointPickerRef"]["ports"] = 1
    assert list(unknown(schema, raw)) == [".spec.endpointPickerRef.ports"]
    with pytest.raises(AssertionError):
        assert_valid(schema, raw)


def test_pools_are_valid() -> None:
    """By the kind's own schema, strictly."""
    schema = schemas(POOL_CRD)[POOL_KIND]
    found = [raw for _, raw in everything() if raw["kind"] == "InferencePool"]
    assert len(found) == 4
    for raw in found:
        assert_valid(schema, raw)


def test_gateways_own_objects_are_valid() -> None:
    """By the schemas that EPP_FLEET_GATEWAY_CRDS names: a folder with the CRDs of the Gateway API,
    Istio, Envoy Gateway and NGINX Gateway Fabric, as their releases bring them."""
    folder = os.environ.get("EPP_FLEET_GATEWAY_CRDS")
    if not folder:
        pytest.skip("EPP_FLEET_GATEWAY_CRDS names no folder with the gateways' CRDs")
    known = schemas(POOL_CRD, *Path(folder).glob("*.yaml"))
    for _, raw in everything():
        assert_valid(known[raw["apiVersion"], raw["kind"]], raw)


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_each_gateway_is_the_one_that_routes_name(gateway: str) -> None:
    """The tenant's route, and the policies beside the Gateway, refer to it."""
    (route,) = [e for e in documents(SAMPLES / "tenant.yaml") if e["kind"] == "HTTPRoute"]
    made = documents(SAMPLES / gateway / "gateway.yaml")
    (found,) = [each for each in made if each["kind"] == "Gateway"]
    head = found["metadata"]
    assert route["spec"]["parentRefs"] == [{"name": head["name"], "namespace": head["namespace"]}]
    assert found["spec"]["listeners"][0]["allowedRoutes"] == {"namespaces": {"from": "All"}}
    for each in made:
        spec = each["spec"]
        for target in (*spec.get("targetRefs", ()), *filter(None, [spec.get("targetRef")])):
            assert (target["kind"], target["name"]) == ("Gateway", head["name"])
            assert each["metadata"]["namespace"] == head["namespace"]
    parameters = found["spec"].get("infrastructure", {}).get("parametersRef")
    if parameters:
        kinds = {(each["kind"], each["metadata"]["name"]) for each in made}
        assert (parameters["kind"], parameters["name"]) in kinds


def test_the_tenants_route_leads_to_its_pools() -> None:
    """One pool a rule, each with a bound on time."""
    (route,) = [e for e in documents(SAMPLES / "tenant.yaml") if e["kind"] == "HTTPRoute"]
    named = []
    for rule in route["spec"]["rules"]:
        (backend,) = rule["backendRefs"]
        assert (backend["group"], backend["kind"]) == (
            "inference.networking.k8s.io",
            "InferencePool",
        )
        named.append(backend["name"])
        assert rule["timeouts"]["request"]
    assert named == [pool.ref.name for pool in pools("tenant.yaml")]
    assert route["metadata"]["namespace"] == "acme"


def test_istios_rules_are_of_the_pools_services() -> None:
    """One for each, with the streams that the documentation speaks of."""
    rules = documents(SAMPLES / "istio" / "picker-connections.yaml")
    hosts = [each["spec"]["host"] for each in rules]
    wanted = [group(pool) for pool in pools("tenant.yaml")]
    assert hosts == [f"{each.service}.{each.namespace}.svc.cluster.local" for each in wanted]
    for each in rules:
        policy = each["spec"]["trafficPolicy"]
        assert each["metadata"]["namespace"] == "acme"
        assert policy["connectionPool"]["http"]["http2MaxRequests"] == 10000
    _, verified = [each["spec"]["trafficPolicy"]["tls"] for each in rules]
    assert verified["subjectAltNames"] == [hosts[1]] == [verified["sni"]]


def test_the_runtimes_limits_are_of_the_pools_clusters() -> None:
    """Envoy AI Gateway names a picker's cluster after its pool."""
    made = documents(SAMPLES / "envoy-ai-gateway" / "gateway.yaml")
    (proxy,) = [each for each in made if each["kind"] == "EnvoyProxy"]
    (patch,) = proxy["spec"]["bootstrap"]["jsonPatches"]
    clusters = [
        AUTHORITIES["an Envoy without an authority"].format(
            pool=pool.ref.name, namespace=pool.ref.namespace
        )
        for pool in pools("tenant.yaml")
    ]
    assert patch["value"]["static_layer"] == {
        f"circuit_breakers.{cluster}.default.{limit}": 10000
        for cluster in clusters
        for limit in ("max_requests", "max_pending_requests")
    }


@pytest.mark.parametrize("name", ["tenant.yaml", "one-service.yaml"])
def test_both_layouts_tell_pools_apart(name: str) -> None:
    """By each gateway's authority; kgateway cannot do the second one, which the text says."""
    found = pools(name)
    index = AuthorityIndex(group_pools(found))
    for form in AUTHORITIES.values():
        for pool in found:
            key = group(pool)
            authority = form.format(
                service=key.service, namespace=key.namespace, port=key.port, pool=pool.ref.name
            )
            assert index.resolve(authority) == key
    assert len({group(pool) for pool in found}) == 2
    assert len({group(pool).service for pool in found}) == {"tenant.yaml": 2}.get(name, 1)


def test_the_documented_authorities_are_read() -> None:
    """Each row of the table, as it stands there, is the sample's first pool."""
    pool = pools("tenant.yaml")[0]
    index = AuthorityIndex(group_pools(pools("tenant.yaml")))
    section = TEXT.partition("## What the fleet sees")[2].partition("\n## ")[0]
    table = section.partition("|---|---|")[2]
    rows = dict(re.findall(r"^\| ([^|`]+) \| `(.+)` \|$", table, re.MULTILINE))
    assert rows.keys() == AUTHORITIES.keys()
    for gateway, written in rows.items():
        authority = written.replace("\\|", "|")
        assert index.resolve(authority) == group(pool), gateway
        expected = AUTHORITIES[gateway].format(
            service="llama-8b-epp", namespace="acme", port=9002, pool="llama-8b"
        )
        assert authority == expected


def test_what_the_document_names_exists() -> None:
    """Files, folders, settings; and every sample is in it."""
    for path in re.findall(r"\b(?:deploy|docs)/[\w./-]*\w/?", TEXT):
        assert (ROOT / path).exists(), path
    for path in SAMPLES.rglob("*.yaml"):
        assert str(path.relative_to(ROOT)) in TEXT
    named = set(re.findall(r"`((?:worker|bounds)\.[a-z_]+)`", TEXT))
    assert named
    assert named <= set(all_fields())
    assert {f"`{each}/`" for each in GATEWAYS} <= set(re.findall(r"`[\w-]+/`", TEXT))

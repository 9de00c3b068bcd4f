"""What local mode tells Envoy: names, authorities, failure modes, addresses."""

from pathlib import Path
from typing import Any

from fleet.local import envoy_config
from fleet.local.envoy_admin import hosts_by_cluster
from fleet.model import Endpoint, FailureMode, GroupKey, Pool, PoolRef

ISTIO = GroupKey("acme", "llama-8b-epp", 9002)
"""CRC-32 of its name is even."""

AI_GATEWAY = GroupKey("acme", "mistral-7b-epp", 9002)
"""CRC-32 of its name is odd."""


def _pool(mode: FailureMode = FailureMode.CLOSE, protocol: str = "http") -> Pool:
    ref = PoolRef("acme", "llama-8b")
    return Pool(ref, "u", {"app": "x"}, (8000,), ISTIO, mode, app_protocol=protocol)


def _overrides(route: Any) -> Any:
    return route["typed_per_filter_config"]["envoy.filters.http.ext_proc"]["overrides"]


def test_istio_form_has_no_authority() -> None:
    """The cluster's name is the authority then, pipes and all."""
    picker = envoy_config.picker_of(PoolRef("acme", "llama-8b"), ISTIO)
    assert picker.cluster == "outbound|9002||llama-8b-epp.acme.svc.cluster.local"
    assert picker.authority is None
    route = envoy_config.pool_route(_pool(), picker)
    assert _overrides(route)["grpc_service"] == {"envoy_grpc": {"cluster_name": picker.cluster}}


def test_ai_gateway_form_sets_the_authority() -> None:
    """Cluster by pool, authority by Service."""
    picker = envoy_config.picker_of(PoolRef("acme", "mistral-7b"), AI_GATEWAY)
    assert picker.cluster == "envoy.clusters.endpointpicker_mistral-7b_acme_ext_proc"
    route = envoy_config.pool_route(_pool(), picker)
    assert _overrides(route)["grpc_service"]["envoy_grpc"]["authority"] == (
        "mistral-7b-epp.acme.svc:9002"
    )


def test_failure_mode_is_the_pools() -> None:
    """FailOpen lets requests pass when nobody owns the pool; FailClose does not."""
    picker = envoy_config.picker_of(PoolRef("acme", "llama-8b"), ISTIO)
    allowed = [
        _overrides(envoy_config.pool_route(_pool(mode), picker))["failure_mode_allow"]
        for mode in (FailureMode.OPEN, FailureMode.CLOSE)
    ]
    assert allowed == [True, False]


def test_route_strips_the_prefix_and_has_a_timeout() -> None:
    """`/ns/pool/v1/...` becomes `/v1/...`; no retries."""
    picker = envoy_config.picker_of(PoolRef("acme", "llama-8b"), ISTIO)
    route = envoy_config.pool_route(_pool(), picker, 2.5)
    assert route["match"] == {"prefix": "/acme/llama-8b/"}
    assert route["route"] == {
        "cluster": "pods/acme/llama-8b",
        "prefix_rewrite": "/",
        "timeout": "2.500s",
    }


def test_assignment_knows_ipv6_and_no_pods() -> None:
    """Brackets go; a pool without ready pods has no endpoints at all."""
    ref = PoolRef("acme", "llama-8b")
    made = envoy_config.pool_assignment(ref, [Endpoint("p", "u", "[fd00::1]:8000", 0)])
    host = made["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"]
    assert host == {"address": "fd00::1", "port_value": 8000}
    assert envoy_config.pool_assignment(ref, [])["endpoints"] == []


def test_h2c_pools_get_http2_upstreams() -> None:
    """`appProtocol: kubernetes.io/h2c` means HTTP/2 to the pods; `http` means HTTP/1.1."""
    key = "typed_extension_protocol_options"
    assert key in envoy_config.pool_cluster(_pool(protocol="kubernetes.io/h2c"), Path("/p"))
    assert key not in envoy_config.pool_cluster(_pool(), Path("/p"))


def test_picker_cluster_follows_the_leaders_file() -> None:
    """Its EDS resource is the group's name, in the group's file."""
    picker = envoy_config.picker_of(PoolRef("acme", "llama-8b"), ISTIO)
    eds = envoy_config.picker_cluster(picker, ISTIO, Path("/run/eds"))["eds_cluster_config"]
    assert eds["service_name"] == "acme/llama-8b-epp:9002"
    path = eds["eds_config"]["path_config_source"]["path"]
    assert path == "/run/eds/acme~llama-8b-epp~9002.json"


def test_hosts_are_read_from_the_admin_page() -> None:
    """Addresses by cluster, IPv6 in brackets, clusters without hosts included."""
    v6 = {"address": {"socket_address": {"address": "::1", "port_value": 2}}}
    v4 = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}
    page = {
        "cluster_statuses": [{"name": "a", "host_statuses": [v4, v6]}, {"name": "b"}],
    }
    assert hosts_by_cluster(page) == {
        "a": frozenset({"127.0.0.1:1", "[::1]:2"}),
        "b": frozenset(),
    }

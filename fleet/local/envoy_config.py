"""What local mode tells Envoy: bootstrap, clusters and routes, as plain JSON values.

One pool is one route `/<namespace>/<pool>/`, one cluster of pods (the pick names the pod in the
metadata `envoy.lb`), and one ext_proc cluster for its picker. The picker cluster is named, and its
`:authority` set, as Istio does for half of the route groups and as Envoy AI Gateway does for the
others, so that both forms are always in use.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleet.model import Endpoint, FailureMode, GroupKey, Pool, PoolRef

Json = dict[str, Any]
PICK_NAMESPACE = "envoy.lb"
PICK_KEY = "x-gateway-destination-endpoint"
SERVED_KEY = "x-gateway-destination-endpoint-served"
ROUTES_NAME = "pools"
FILTER = "envoy.filters.http.ext_proc"
TYPE = "type.googleapis.com/"
ROUTE_TIMEOUT_SECONDS = 15.0
MESSAGE_TIMEOUT = "1000s"
CIRCUIT_LIMIT = 40_000


@dataclass(frozen=True, slots=True)
class Picker:
    """How Envoy reaches the picker of one pool.

    Attributes:
        cluster: name of the ext_proc cluster.
        authority: `:authority` of its streams; None = Envoy's default, the cluster's name.
    """

    cluster: str
    authority: str | None


def picker_of(pool: PoolRef, group: GroupKey) -> Picker:
    """Istio's form or AI Gateway's, always the same one for a group."""
    service, namespace, port = group.service, group.namespace, group.port
    if zlib.crc32(str(group).encode()) % 2 == 0:
        return Picker(f"outbound|{port}||{service}.{namespace}.svc.cluster.local", None)
    cluster = f"envoy.clusters.endpointpicker_{pool.name}_{pool.namespace}_ext_proc"
    return Picker(cluster, f"{service}.{namespace}.svc:{port}")


def pods_cluster(pool: PoolRef) -> str:
    """Name of the cluster of a pool's pods."""
    return f"pods/{pool}"


def eds_file_name(group: GroupKey) -> str:
    """The leader's file of a route group."""
    return f"{group.namespace}~{group.service}~{group.port}.json"


def pods_file_name(pool: PoolRef) -> str:
    """Our own file of a pool's pods."""
    return f"{pool.namespace}~{pool.name}.json"


def _from_file(path: Path) -> Json:
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3"}


def _seconds(value: float) -> str:
    return f"{value:.3f}s"


def _limits() -> Json:
    names = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
    return {"thresholds": [dict.fromkeys(names, CIRCUIT_LIMIT)]}


def _http2(keepalive: bool) -> Json:
    options: Json = {}
    if keepalive:
        # A worker that is gone without a FIN is noticed by this alone.
        options["connection_keepalive"] = {"interval": "2s", "timeout": "1s"}
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    value = {"@type": TYPE + name, "explicit_http_config": {"http2_protocol_options": options}}
    return {name: value}


def picker_cluster(picker: Picker, group: GroupKey, eds: Path) -> Json:
    """The ext_proc cluster of a group; its addresses are in the leader's file."""
    return {
        "@type": TYPE + "envoy.config.cluster.v3.Cluster",
        "name": picker.cluster,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {
            "service_name": str(group),
            "eds_config": _from_file(eds / eds_file_name(group)),
        },
        "circuit_breakers": _limits(),
        "typed_extension_protocol_options": _http2(keepalive=True),
    }


def _policy(name: str, package: str, more: Json) -> Json:
    config = {"@type": f"{TYPE}envoy.extensions.load_balancing_policies.{package}", **more}
    full = f"envoy.load_balancing_policies.{name}"
    return {"policies": [{"typed_extension_config": {"name": full, "typed_config": config}}]}


def pool_cluster(pool: Pool, pods: Path | Json) -> Json:
    """The cluster of a pool's pods: the pick decides, round robin if there is none.

    Args:
        pods: folder of the pods' files, or the pool's assignment itself.
    """
    path = [{"key": PICK_KEY}]
    policy = _policy(
        "override_host",
        "override_host.v3.OverrideHost",
        {
            "override_host_sources": [{"metadata": {"key": PICK_NAMESPACE, "path": path}}],
            "selected_host_key": {"key": PICK_NAMESPACE, "path": [{"key": SERVED_KEY}]},
            "fallback_policy": _policy("round_robin", "round_robin.v3.RoundRobin", {}),
        },
    )
    cluster: Json = {
        "@type": TYPE + "envoy.config.cluster.v3.Cluster",
        "name": pods_cluster(pool.ref),
        "connect_timeout": "1s",
        "load_balancing_policy": policy,
        "circuit_breakers": _limits(),
    }
    if isinstance(pods, Path):
        eds_config = _from_file(pods / pods_file_name(pool.ref))
        cluster.update(type="EDS", eds_cluster_config={"eds_config": eds_config})
    else:
        assignment = {key: value for key, value in pods.items() if key != "@type"}
        cluster.update(type="STATIC", load_assignment=assignment)
    if pool.app_protocol in ("kubernetes.io/h2c", "http2", "h2c"):
        cluster["typed_extension_protocol_options"] = _http2(keepalive=False)
    return cluster


def _socket(address: str) -> Json:
    host, _, port = address.rpartition(":")
    return {"socket_address": {"address": host.strip("[]"), "port_value": int(port)}}


def pool_assignment(pool: PoolRef, endpoints: Iterable[Endpoint]) -> Json:
    """The pods of a pool as an EDS resource."""
    hosts = [{"endpoint": {"address": _socket(endpoint.address)}} for endpoint in endpoints]
    return {
        "@type": TYPE + "envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": pods_cluster(pool),
        "endpoints": [{"lb_endpoints": hosts}] if hosts else [],
    }


def _modes(headers: str, body: str, trailers: str) -> Json:
    return {
        "request_header_mode": headers,
        "response_header_mode": headers,
        "request_body_mode": body,
        "response_body_mode": body,
        "request_trailer_mode": trailers,
        "response_trailer_mode": trailers,
    }


def pool_route(pool: Pool, picker: Picker, timeout_seconds: float = ROUTE_TIMEOUT_SECONDS) -> Json:
    """`/<namespace>/<pool>/...` goes to the pool, through its own picker."""
    grpc: Json = {"cluster_name": picker.cluster}
    if picker.authority is not None:
        grpc["authority"] = picker.authority
    namespaces = {"untyped": [PICK_NAMESPACE]}
    overrides = {
        "grpc_service": {"envoy_grpc": grpc},
        "failure_mode_allow": pool.failure_mode is FailureMode.OPEN,
        "processing_mode": _modes("SEND", "FULL_DUPLEX_STREAMED", "SEND"),
        "metadata_options": {
            "forwarding_namespaces": namespaces,
            "receiving_namespaces": namespaces,
        },
    }
    per_route = {
        "@type": TYPE + "envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": overrides,
    }
    return {
        "match": {"prefix": f"/{pool.ref}/"},
        "route": {
            "cluster": pods_cluster(pool.ref),
            "prefix_rewrite": "/",
            "timeout": _seconds(timeout_seconds),
        },
        "typed_per_filter_config": {FILTER: per_route},
    }


def route_configuration(routes: Sequence[Json]) -> Json:
    """All routes; what none of them matches is answered 404 by Envoy."""
    host = {"name": "pools", "domains": ["*"], "routes": list(routes)}
    return {
        "@type": TYPE + "envoy.config.route.v3.RouteConfiguration",
        "name": ROUTES_NAME,
        "virtual_hosts": [host],
    }


def discovery_file(version: int, resources: Sequence[Json]) -> Json:
    """A file that Envoy reads as one answer of a discovery service."""
    return {"version_info": str(version), "resources": list(resources)}


def _connection_manager(routes_file: Path) -> Json:
    base = {
        "@type": TYPE + "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        # Never used: every route names its own picker; without a route nothing is sent.
        "grpc_service": {"envoy_grpc": {"cluster_name": "dummy"}},
        "processing_mode": _modes("SKIP", "NONE", "SKIP"),
        "failure_mode_allow": True,
        "message_timeout": MESSAGE_TIMEOUT,
        "max_message_timeout": MESSAGE_TIMEOUT,
    }
    router = {"@type": TYPE + "envoy.extensions.filters.http.router.v3.Router"}
    return {
        "@type": TYPE
        + "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "gateway",
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "rds": {"route_config_name": ROUTES_NAME, "config_source": _from_file(routes_file)},
        "http_filters": [
            {"name": FILTER, "typed_config": base},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }


def bootstrap(
    *, gateway_port: int, admin_port: int, clusters_file: Path, routes_file: Path
) -> Json:
    """The static part: one listener, the admin port, both on loopback."""
    manager = _connection_manager(routes_file)
    chain = {
        "filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
        ]
    }
    listener = {
        "name": "gateway",
        "address": _socket(f"127.0.0.1:{gateway_port}"),
        "filter_chains": [chain],
    }
    return {
        "node": {"id": "epp-fleet-local", "cluster": "epp-fleet-local"},
        "admin": {"address": _socket(f"127.0.0.1:{admin_port}")},
        "dynamic_resources": {"cds_config": _from_file(clusters_file)},
        "static_resources": {"listeners": [listener]},
    }

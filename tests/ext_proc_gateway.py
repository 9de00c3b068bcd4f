"""A real Envoy whose requests a worker picks for, as gateways set it up for an InferencePool."""

from typing import Any

from tests.envoy import http_listener

TYPE = "type.googleapis.com/envoy."
PICK = "x-gateway-destination-endpoint"
PARTS = ("header", "trailer")


def endpoint(address: str) -> dict[str, Any]:
    """As Envoy reads it."""
    host, _, port = address.rpartition(":")
    return {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}}


def resources(
    picker: str, authority: str, *, body_mode: str = "FULL_DUPLEX_STREAMED"
) -> dict[str, Any]:
    """One listener whose picker is at this address, and whose pods are wherever it says.

    Args:
        authority: of the calls to the picker.
        body_mode: of requests and responses.
    """
    modes = dict.fromkeys(("request_body_mode", "response_body_mode"), body_mode)
    parts = [f"{side}_{part}_mode" for side in ("request", "response") for part in PARTS]
    ext_proc = {
        "name": "envoy.filters.http.ext_proc",
        "typed_config": {
            "@type": TYPE + "extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "picker", "authority": authority}},
            "processing_mode": {**dict.fromkeys(parts, "SEND"), **modes},
            "message_timeout": "20s",
        },
    }
    options = TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions"
    return {
        "listeners": [http_listener("gateway", "pods", filters=(ext_proc,))],
        "clusters": [
            {
                "name": "picker",
                "type": "STATIC",
                "load_assignment": {
                    "cluster_name": "picker",
                    "endpoints": [{"lb_endpoints": [endpoint(picker)]}],
                },
                "typed_extension_protocol_options": {
                    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": options,
                        "explicit_http_config": {"http2_protocol_options": {}},
                    }
                },
                "circuit_breakers": {"thresholds": [{"max_requests": 100_000}]},
            },
            {
                "name": "pods",
                "type": "ORIGINAL_DST",
                "lb_policy": "CLUSTER_PROVIDED",
                "original_dst_lb_config": {"use_http_header": True, "http_header_name": PICK},
                "circuit_breakers": {
                    "thresholds": [
                        {
                            "max_requests": 100_000,
                            "max_connections": 100_000,
                            "max_pending_requests": 100_000,
                        }
                    ]
                },
            },
        ],
    }

"""Labels, annotations and names that the fleet writes into a cluster, or reads there.

Whoever may set `FLEET_LABEL` on a Service may have that fleet's addresses put into it; so the label
is a Service owner's consent, and nothing is ever written into a Service without it.
"""

FLEET_LABEL = "epp-fleet.dev/fleet"
"""On Services and EndpointSlices: the name of the fleet that they belong to."""

CONTROLLER_NAME = "epp-fleet.dev/controller-name"
"""Annotation of a pool: whose it is. On a Service that we created: who did."""

MANAGED_BY = "epp-fleet.dev"
"""The value of both labels below on what a fleet created."""

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
"""On a Service that a fleet created; never on one that only bears `FLEET_LABEL`."""

SLICE_MANAGED_BY_LABEL = "endpointslice.kubernetes.io/managed-by"
SERVICE_NAME_LABEL = "kubernetes.io/service-name"
"""On an EndpointSlice: the Service that it belongs to."""

APP_PROTOCOL = "http2"
"""Of every picker port: gateways must speak HTTP/2 to it without prior negotiation."""


def port_name(number: int) -> str:
    """The name of a port in a Service that we create. `grpc-` says HTTP/2 to an Istio that goes by
    names, and Services with several ports need one each."""
    return f"grpc-{number}"

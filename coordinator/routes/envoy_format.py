"""A route as an Envoy EDS file: a DiscoveryResponse in JSON, and back. Pure.

`version_info` is the route's epoch.version: what fences a write is in the file itself, and Envoy
shows it in its admin interface.
"""

import re
from typing import Any

import msgspec

from coordinator.routes.contract import Route
from fleet.errors import FormatError, RouteError
from fleet.model import EpochVersion, GroupKey
from fleet.model.identity import host_port

TYPE_URL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
SUFFIX = ".json"
MAX_FILE_BYTES = 256 * 1024
_NAME = re.compile(
    r"(?P<namespace>[a-z0-9-]{1,63})~(?P<service>[a-z0-9-]{1,63})~(?P<port>[0-9]{1,5})"
)


def file_name(group: GroupKey) -> str:
    """`<namespace>~<service>~<port>.json`; `~` is in no Kubernetes name.

    Raises:
        RouteError: the group's names are none, so they may not become a file's name.
    """
    name = f"{group.namespace}~{group.service}~{group.port}"
    if _NAME.fullmatch(name) is None:
        raise RouteError(f"route {str(group)[:300]!r}: not a namespace, Service and port")
    return name + SUFFIX


def group_of(name: str) -> GroupKey | None:
    """The group that `file_name` names so; None for any other file."""
    match = _NAME.fullmatch(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None
    if match is None:
        return None
    group = GroupKey(match["namespace"], match["service"], int(match["port"]))
    return group if file_name(group) == name else None


def encode(route: Route) -> bytes:
    """The file's content; without addresses an assignment without endpoints.

    Raises:
        RouteError: an address is no `host:port`.
    """
    endpoints = [{"endpoint": {"address": _socket_address(each)}} for each in route.addresses]
    assignment: dict[str, Any] = {
        "@type": TYPE_URL,
        "cluster_name": str(route.group),
        "endpoints": [{"lb_endpoints": endpoints}] if endpoints else [],
    }
    response = {
        "version_info": str(route.version),
        "type_url": TYPE_URL,
        "resources": [assignment],
    }
    return msgspec.json.encode(response)


def _socket_address(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        raise RouteError(f"route address {address[:100]!r}: not a host:port")
    return {"socket_address": {"address": host, "port_value": int(port)}}


class _SocketAddress(msgspec.Struct):
    address: str
    port_value: int


class _Address(msgspec.Struct):
    socket_address: _SocketAddress


class _Endpoint(msgspec.Struct):
    address: _Address


class _LbEndpoint(msgspec.Struct):
    endpoint: _Endpoint


class _Locality(msgspec.Struct):
    lb_endpoints: list[_LbEndpoint]


class _Assignment(msgspec.Struct):
    cluster_name: str
    endpoints: list[_Locality]


class _Response(msgspec.Struct):
    version_info: str
    resources: list[_Assignment]


_decoder = msgspec.json.Decoder(_Response)


def decode(group: GroupKey, data: bytes) -> Route:
    """The route in a file.

    Raises:
        FormatError: not one that `encode` could have written for `group`.
    """
    try:
        response = _decoder.decode(data)
        version = EpochVersion.parse(response.version_info)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FormatError(f"route {group}: {error}") from None
    if len(response.resources) != 1 or response.resources[0].cluster_name != str(group):
        raise FormatError(f"route {group}: the file is not of this group")
    addresses = tuple(
        _joined(each.endpoint.address.socket_address)
        for locality in response.resources[0].endpoints
        for each in locality.lb_endpoints
    )
    return Route(group, addresses, version)


def _joined(address: _SocketAddress) -> str:
    return host_port(address.address, address.port_value)

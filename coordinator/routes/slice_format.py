"""A route as EndpointSlices, and back. Pure.

A slice belongs to one (Service, port) of one fleet: groups of one Service may have different
owners. Addresses of IPv4 and IPv6 cannot share a slice (`addressType` never changes), so a group
has one slice per address family in use, nearly always one. What the slice is of stands in its
labels; its name follows from them, so that two writers can only ever meet at the same object.

The epoch.version that fences a write is an annotation of the slice itself. There is no targetRef:
Istio and agentgateway would then take the Pod's word for whether the endpoint is healthy.
"""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from coordinator.routes.contract import Route
from fleet.errors import RouteError
from fleet.kube.contract import Raw
from fleet.kube.names import (
    APP_PROTOCOL,
    FLEET_LABEL,
    MANAGED_BY,
    SERVICE_NAME_LABEL,
    SLICE_MANAGED_BY_LABEL,
)
from fleet.model import EpochVersion, GroupKey

API_VERSION: Final = "discovery.k8s.io/v1"
PORT: Final = "epp-fleet.dev/service-port"
VERSION: Final = "epp-fleet.dev/map-version"

IPV4: Final = "IPv4"
IPV6: Final = "IPv6"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_KEPT_OF_SERVICE: Final = 44
"""Characters of the Service's name in the slice's; with port, family and hash at most 63."""


@dataclass(frozen=True, slots=True)
class Slice:
    """What counts of one slice that is ours.

    Attributes:
        version: epoch.version of the map it follows from; None if it bears none that can be read.
        addresses: `host:port` of its endpoints.
        sound: whether a reader may trust it: all is as we write it, the name included.
    """

    group: GroupKey
    name: str
    uid: str
    resource_version: str
    version: EpochVersion | None
    family: str
    addresses: tuple[str, ...]
    port_name: str
    sound: bool


def selector(fleet: str) -> str:
    """The label selector of all slices of this fleet."""
    return f"{SLICE_MANAGED_BY_LABEL}={MANAGED_BY},{FLEET_LABEL}={fleet}"


def collection(namespace: str) -> str:
    """The path of a namespace's slices, or of all for ""."""
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{API_VERSION}{place}/endpointslices"


def slice_path(namespace: str, name: str) -> str:
    """The path of one slice."""
    return f"{collection(namespace)}/{name}"


def slice_name(group: GroupKey, family: str, fleet: str) -> str:
    """The name of the group's slice for one address family; at most 63 characters.

    Raises:
        RouteError: the group's names are none, so they may not become part of a path.
    """
    named = _LABEL.fullmatch(group.namespace) and _LABEL.fullmatch(group.service)
    if not named or not 0 < group.port <= 65535:
        raise RouteError(f"route {str(group)[:300]!r}: not a namespace, Service and port")
    whole = f"{fleet}/{group.service}:{group.port}/{family}"
    digest = hashlib.blake2b(whole.encode(), digest_size=4).hexdigest()
    return f"{group.service[:_KEPT_OF_SERVICE]}-{group.port}-{family[-1]}-{digest}"


def is_ours(raw: Raw, fleet: str) -> bool:
    """Whether this slice is ours to write: never touch one that is not."""
    labels = _mapping(_mapping(raw.get("metadata")).get("labels"))
    return labels.get(SLICE_MANAGED_BY_LABEL) == MANAGED_BY and labels.get(FLEET_LABEL) == fleet


def says_group(raw: Raw, group: GroupKey) -> bool:
    """Whether its labels say that it is of `group`."""
    return _group(_mapping(raw.get("metadata"))) == group


def families_of(route: Route) -> dict[str, tuple[str, ...]]:
    """The route's addresses by address family, in the order given.

    Raises:
        RouteError: an address is no `ip:port`, or two of one family differ in the port.
    """
    families: dict[str, list[str]] = {}
    ports: dict[str, int] = {}
    for address in route.addresses:
        family, _, port = _split(route.group, address)
        families.setdefault(family, []).append(address)
        if ports.setdefault(family, port) != port:
            raise RouteError(f"route {route.group}: owners at different ports: {route.addresses}")
    return {family: tuple(addresses) for family, addresses in families.items()}


def encode(
    route: Route, addresses: tuple[str, ...], family: str, *, port_name: str, fleet: str
) -> Raw:
    """One slice of `route`, without resourceVersion.

    Args:
        addresses: those of this `family`, all at one port; none = a slice without endpoints.
        port_name: that of the Service's port: gateways find the slice's port by it.
    """
    group = route.group
    hosts = [_split(group, address)[1] for address in addresses]
    port = _split(group, addresses[0])[2] if addresses else group.port
    return {
        "apiVersion": API_VERSION,
        "kind": "EndpointSlice",
        "metadata": {
            "name": slice_name(group, family, fleet),
            "namespace": group.namespace,
            "labels": {
                SERVICE_NAME_LABEL: group.service,
                SLICE_MANAGED_BY_LABEL: MANAGED_BY,
                FLEET_LABEL: fleet,
                PORT: str(group.port),
            },
            "annotations": {VERSION: str(route.version)},
        },
        "addressType": family,
        "endpoints": [
            {
                "addresses": [host],
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            for host in hosts
        ],
        "ports": [
            {"name": port_name, "port": port, "protocol": "TCP", "appProtocol": APP_PROTOCOL}
        ],
    }


def decode(raw: Raw, fleet: str, *, expected: GroupKey | None = None) -> Slice | None:
    """What counts of a slice, or None if it is not ours or does not say of which group.

    Args:
        expected: the group whose slice's name it bears, if its labels do not say.
    """
    if not is_ours(raw, fleet):
        return None
    metadata = _mapping(raw.get("metadata"))
    labelled = _group(metadata)
    group = labelled or expected
    if group is None:
        return None
    family = raw.get("addressType")
    family = family if family in (IPV4, IPV6) else ""
    ports, endpoints = _list(raw.get("ports")), _list(raw.get("endpoints"))
    port = _mapping(ports[0]) if len(ports) == 1 else {}
    number = port.get("port")
    sound = (
        labelled is not None
        and family != ""
        and isinstance(number, int)
        and port.get("protocol") == "TCP"
        and port.get("appProtocol") == APP_PROTOCOL
        and all(_sound(each) for each in endpoints)
    )
    name = str(metadata.get("name"))
    version = _version(metadata)
    return Slice(
        group=group,
        name=name,
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        version=version,
        family=family,
        addresses=tuple(_addresses(endpoints, number)),
        port_name=str(port.get("name") or ""),
        sound=sound and version is not None and _named(group, family, fleet, name),
    )


def _named(group: GroupKey, family: str, fleet: str, name: str) -> bool:
    try:
        return slice_name(group, family, fleet) == name
    except RouteError:
        return False


def _group(metadata: Mapping[str, Any]) -> GroupKey | None:
    labels = _mapping(metadata.get("labels"))
    namespace, service = metadata.get("namespace"), labels.get(SERVICE_NAME_LABEL)
    port = str(labels.get(PORT, ""))
    if not (namespace and service and port.isascii() and port.isdigit()):
        return None
    return GroupKey(str(namespace), str(service), int(port[:6]))


def _version(metadata: Mapping[str, Any]) -> EpochVersion | None:
    try:
        return EpochVersion.parse(str(_mapping(metadata.get("annotations")).get(VERSION)))
    except ValueError:
        return None


def _sound(endpoint: object) -> bool:
    """Whether gateways take this endpoint for one that serves, wherever they are."""
    fields = _mapping(endpoint)
    conditions = _mapping(fields.get("conditions"))
    plain = not (fields.get("targetRef") or fields.get("hints"))
    serving = conditions.get("serving") in (True, None)
    return (
        plain and serving and conditions.get("ready") is True and not conditions.get("terminating")
    )


def _addresses(endpoints: Iterable[object], port: object) -> Iterable[str]:
    for endpoint in endpoints:
        for host in _list(_mapping(endpoint).get("addresses")):
            yield f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def _split(group: GroupKey, address: str) -> tuple[str, str, int]:
    """Family, host and port of an address."""
    host, _, port = address.rpartition(":")
    try:
        parsed = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port) if port.isascii() and port.isdigit() else 0
    except ValueError:
        number = 0
    if not 0 < number <= 65535:
        raise RouteError(f"route {group}: address {address[:100]!r} is no ip:port")
    return (IPV6 if parsed.version == 6 else IPV4), parsed.compressed, number


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []

"""Which route group a stream belongs to: the `:authority` a gateway puts on it.

The ext_proc protocol carries no pool name. What every open gateway does set is the Service of the
pool's `endpointPickerRef`:

    Istio                            outbound|9002||svc.ns.svc.cluster.local  (3rd field: subset)
    Envoy AI Gateway, kgateway       svc.ns.svc:9002
    agentgateway                     svc.ns.svc.cluster.local:9002
    NGINX Gateway Fabric             svc.ns:9002
    a gateway that sets none         [envoy.clusters.]endpointpicker_<pool>_<ns>_ext_proc

A client cannot forge it: client headers travel inside the ext_proc messages. Kubernetes names have
no `_`, so the last form is unambiguous.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from fleet.errors import AuthorityError
from fleet.model import GroupKey, Pool, PoolRef

MAX_AUTHORITY = 1024
"""Characters; a Service's full name needs about 150 at most."""

_MAX_CACHED = 4096
_QUOTED = 120

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_HOST = re.compile(rf"({_LABEL})\.({_LABEL})(?:\.svc(?:\.{_LABEL})*)?\.?")
_POOL = re.compile(
    rf"(?:envoy\.clusters\.)?endpointpicker_({_LABEL}(?:\.{_LABEL})*)_({_LABEL})_ext_proc"
)
_PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Authority:
    """What an authority names: a Service, or (a gateway's cluster name) a pool.

    Attributes:
        service: empty in the form that names a pool.
        port: the Service's port; None if the authority has none.
        pool: empty in the form that names a Service.
    """

    namespace: str
    service: str = ""
    port: int | None = None
    pool: str = ""


def _refuse(text: str, why: str) -> NoReturn:
    quoted = ascii(text[:_QUOTED]) + ("..." if len(text) > _QUOTED else "")
    raise AuthorityError(f":authority {quoted} {why}")


def _port(text: str, port: str) -> int:
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        _refuse(text, "has no port of 1 to 65535 where one belongs")
    return int(port)


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _service(text: str, host: str, port: int | None) -> Authority:
    if _is_ip(host):
        _refuse(text, "is an IP address; it must name a Service and its namespace")
    match = _HOST.fullmatch(host)
    if match is None:
        _refuse(text, "names no Service; expected <service>.<namespace>[.svc[.<domain>]][:<port>]")
    return Authority(namespace=match[2], service=match[1], port=port)


def parse_authority(text: str) -> Authority:
    """Read an `:authority` in any of the forms above; DNS is case-insensitive.

    Raises:
        AuthorityError: it names no Service (an IP address, a single label, anything else); quotes
            what was received, escaped and cut.
    """
    if not text:
        _refuse(text, "is empty")
    if len(text) > MAX_AUTHORITY:
        _refuse(text, f"is longer than {MAX_AUTHORITY} characters")
    lowered = text.lower()
    if "|" in lowered:
        fields = lowered.split("|")
        if len(fields) != 4:
            _refuse(text, "has not the four fields of outbound|<port>|<subset>|<host>")
        return _service(text, fields[3], _port(text, fields[1]))
    pool = _POOL.fullmatch(lowered)
    if pool is not None:
        return Authority(namespace=pool[2], pool=pool[1])
    host, colon, port = lowered.rpartition(":")
    if not colon or _is_ip(lowered):
        return _service(text, lowered, None)
    return _service(text, host, _port(text, port))


class AuthorityIndex:
    """Finds the route group of an authority among the pools there are.

    Immutable: build a new one when pools change. Building is cheap; the two look-up tables are made
    when an authority without a port, or one that names a pool, first comes.

    Args:
        groups: pools by route group, as `group_pools` gives them.
    """

    def __init__(self, groups: Mapping[GroupKey, tuple[Pool, ...]]) -> None:
        self._groups = groups
        self._by_service: dict[tuple[str, str], list[GroupKey]] | None = None
        self._by_pool: dict[PoolRef, GroupKey] | None = None
        self._cache: dict[str, GroupKey | None] = {}

    def resolve(self, text: str) -> GroupKey | None:
        """The route group that `text` names.

        With a port, the key is returned whether or not a pool has it: the pool may come yet.
        Without one, it is the group of that Service; None if there is none (yet).

        Raises:
            AuthorityError: `text` names no Service, or, without a port, several groups.
        """
        if text in self._cache:
            return self._cache[text]
        group = self._find(text, parse_authority(text))
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[text] = group
        return group

    def _find(self, text: str, authority: Authority) -> GroupKey | None:
        if authority.pool:
            return self._pools().get(PoolRef(authority.namespace, authority.pool))
        if authority.port is not None:
            return GroupKey(authority.namespace, authority.service, authority.port)
        found = self._services().get((authority.namespace, authority.service), [])
        if len(found) > 1:
            ports = ", ".join(str(group.port) for group in sorted(found)[:8])
            _refuse(text, f"has no port, and pools use several of that Service: {ports}")
        return found[0] if found else None

    def _services(self) -> Mapping[tuple[str, str], list[GroupKey]]:
        if self._by_service is None:
            self._by_service = {}
            for group in self._groups:
                name = (group.namespace, group.service)
                self._by_service.setdefault(name, []).append(group)
        return self._by_service

    def _pools(self) -> Mapping[PoolRef, GroupKey]:
        if self._by_pool is None:
            self._by_pool = {
                pool.ref: pool.groups[0] for pools in self._groups.values() for pool in pools
            }
        return self._by_pool

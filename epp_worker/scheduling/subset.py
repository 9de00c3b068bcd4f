"""Subset hints: the endpoints that a gateway allows, compared as addresses and not as text.

`fd00:0:0::10` and `fd00::10` are one address, and so are `::ffff:10.0.0.7` and `10.0.0.7`.
"""

import ipaddress
from collections.abc import Iterable

from fleet.model.identity import host_port

MAX_ITEMS = 4096
"""More endpoints than any pool has; what follows in a longer hint is not looked at, whether or not
what came before were addresses."""


def normalise_ip(text: str) -> str | None:
    """The one spelling of an IP address, an IPv4-mapped one as IPv4; None if it is none."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if address.version == 6 and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return address.compressed


def split_address(text: str) -> tuple[str, int | None] | None:
    """`ip:port`, `[ip]:port`, `[ip]` or a bare ip as (normalised ip, port); None if it is none."""
    text = text.strip()
    host, port = text, ""
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return None
        port = port[1:]
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
        if not port:
            return None
    ip = normalise_ip(host)
    if ip is None:
        return None
    if not port:
        return (ip, None)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65536):
        return None
    return (ip, int(port))


def join(ip: str, port: int) -> str:
    """The normalised spelling of an address with a port."""
    return host_port(ip, port)


def normalise(items: Iterable[str]) -> frozenset[str]:
    """Addresses of a hint, each `ip:port` or, for any port, a bare ip.

    An item may itself be a comma-separated list. Items that are no address allow nothing.
    """
    found: set[str] = set()
    left = MAX_ITEMS
    for item in items:
        for part in item.split(",", left):
            if not left:
                return frozenset(found)
            left -= 1
            address = split_address(part)
            if address is not None:
                ip, port = address
                found.add(ip if port is None else join(ip, port))
    return frozenset(found)

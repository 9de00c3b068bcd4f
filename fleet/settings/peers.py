"""The form of `worker.peers`."""

from collections.abc import Iterator

ADDRESS = "address"
DNS = "dns"
FILE = "file"


def split_peers(text: str) -> Iterator[tuple[str, str]]:
    """Its parts as (kind, value).

    Raises:
        ValueError: says which part is wrong, and how it is written.
    """
    for part in text.split(","):
        one = part.strip()
        if not one:
            continue
        kind, colon, value = one.partition(":")
        if kind == FILE and colon:
            if not value:
                raise ValueError("file: names no file; write file:/run/epp-fleet/peers")
            yield FILE, value
            continue
        if kind == DNS and colon and ":" in value:
            yield DNS, _address(value)
        else:
            yield ADDRESS, _address(one)


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"{text[:100]!r} is no host:port; write dns:name:9004, host:9004 or file:")
    return text

"""Reading a ClientHello without taking it away."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp_worker.http2 import hello


def said_by(*protocols: str, host: str | None = "epp.ns.svc") -> bytes:
    """What OpenSSL's client says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=host)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


@pytest.mark.parametrize("protocols", [("h2",), ("http/1.1", "h2"), ("http/1.1",), ()])
def test_finds_what_a_client_offers(protocols: tuple[str, ...]) -> None:
    """In its order; None if it offers nothing."""
    record = said_by(*protocols)
    assert hello.record_bytes(record[:5]) == len(record)
    expected = tuple(each.encode() for each in protocols) or None
    assert hello.offered_protocols(record) == expected
    assert hello.offered_protocols(said_by(*protocols, host=None)) == expected


@pytest.mark.parametrize(
    "head",
    [b"GET /", b"PRI *", b"\x16\x02\0\0\x10", b"\x16\3\1\0\0", b"\x16\3\1\x40\1", b"\x80" * 5],
)
def test_knows_what_is_no_tls(head: bytes) -> None:
    """Another first byte, another version, or a length that no record has."""
    with pytest.raises(ValueError, match="TLS"):
        hello.record_bytes(head)


def test_a_broken_hello_offers_nothing() -> None:
    """Cut anywhere: left to OpenSSL."""
    record = said_by("http/1.1")
    for end in range(len(record)):
        assert hello.offered_protocols(record[:end]) in (None, (b"http/1.1",))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_without_a_fault(data: bytes) -> None:
    """Whatever a peer sends."""
    hello.offered_protocols(b"\x16\3\1\0\xc8" + data)

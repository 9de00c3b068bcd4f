"""How the internal port is served and dialled: mutual TLS where the process has certificates.

A server takes only peers that the fleet's CA signed, a client only the role that it means to reach,
by name: addresses are IPs of pods. New files count for the next handshake; open connections stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import grpc
import grpc.aio

from fleet.certificates import Bundle, Certificates, Role
from fleet.model.identity import host_port


def server_credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Credentials that are looked at anew for each handshake."""
    known = certificates.bundle()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        # Runs on a thread of grpc's, one at a time.
        nonlocal known
        newer = certificates.changed(known)
        if newer is None:
            return None
        known = newer
        return _configuration(newer)

    untyped: Any = grpc.dynamic_ssl_server_credentials  # the stubs know no None: nothing new
    credentials: grpc.ServerCredentials = untyped(
        _configuration(known), fetch, require_client_authentication=True
    )
    return credentials


def _configuration(bundle: Bundle) -> grpc.ServerCertificateConfiguration:
    pairs = [(bundle.key, bundle.certificate)]
    return grpc.ssl_server_certificate_configuration(pairs, bundle.ca)


def listen(server: grpc.aio.Server, host: str, port: int, certificates: Certificates | None) -> int:
    """Bind; returns the port that was bound, 0 or an error for none.

    Raises:
        RuntimeError: the port is taken.
    """
    address = host_port(host, port)
    if certificates is None:
        return server.add_insecure_port(address)
    return server.add_secure_port(address, server_credentials(certificates))


def dial(
    address: str,
    certificates: Certificates | None,
    role: Role,
    options: Sequence[tuple[str, int]],
) -> grpc.aio.Channel:
    """A channel to the internal port of a process of that role; connects on first use."""
    if certificates is None:
        return grpc.aio.insecure_channel(address, options=list(options))
    bundle = certificates.bundle()
    credentials = grpc.ssl_channel_credentials(bundle.ca, bundle.key, bundle.certificate)
    named = ("grpc.ssl_target_name_override", certificates.name_of(role))
    return grpc.aio.secure_channel(address, credentials, options=[*options, named])


class Caller(Protocol):
    """A call, as far as it tells who makes it."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What TLS knows of the caller."""
        ...


def stranger(context: Caller, certificates: Certificates | None, role: Role) -> str | None:
    """Why the caller is not the role of this fleet that it must be; None if it is.

    To be asked before anything is read from the call.
    """
    if certificates is None:
        return None
    wanted = certificates.name_of(role)
    names = [bytes(name).decode(errors="replace") for name in _dns_names(context)]
    if wanted in names:
        return None
    return f"its certificate is for {', '.join(names)[:200] or 'no DNS name'}, not for {wanted}"


def _dns_names(context: Caller) -> Iterable[bytes]:
    return context.auth_context().get("peer_dns", ())

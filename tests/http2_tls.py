"""The transport over TLS, for tests: certificates of a CA of one's own, and clients of it."""

import asyncio
import ssl
from pathlib import Path

import grpc
import grpc.aio

from epp_worker.http2 import Http2Limits, Http2Server
from epp_worker.http2.contract import Service
from fleet.certificates import Role, ServingTls, peer_name
from fleet.certificates.authority import Pair
from fleet.clock import SystemClock
from fleet.settings.model import WorkerSettings
from tests.http2_peer import ECHO
from tests.tls_files import FLEET, new_ca, write_set

NAME = peer_name(Role.WORKER, FLEET)
"""What the certificates of `write_set` are for."""


class Authority:
    """A CA, a worker's files signed by it, and what trusts it."""

    def __init__(self, folder: Path, ca: Pair | None = None) -> None:
        self.folder = folder
        self.ca = ca or new_ca()
        self.renew()

    def renew(self) -> None:
        """A new certificate in place of the old one."""
        self.files = write_set(self.folder, self.ca, Role.WORKER)

    def tls(self, mode: str = "auto", client_ca: str = "") -> ServingTls:
        """What a worker with these files serves with."""
        settings = WorkerSettings(
            tls=mode,
            tls_certificate_file=self.files.certificate_file,
            tls_key_file=self.files.key_file,
            tls_client_ca_file=client_ca,
        )
        return ServingTls(settings, [], SystemClock())

    def client(self, *protocols: str) -> ssl.SSLContext:
        """A client that verifies."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self.ca.certificate.decode())
        if protocols:
            context.set_alpn_protocols(list(protocols))
        return context

    def channel(self, port: int, *, pair: Pair | None = None) -> grpc.aio.Channel:
        """A grpcio channel of its own connection; `pair` is the client's own certificate."""
        credentials = grpc.ssl_channel_credentials(
            self.ca.certificate, pair.key if pair else None, pair.certificate if pair else None
        )
        options = [
            ("grpc.ssl_target_name_override", NAME),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        return grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


async def started(
    service: Service, tls: ServingTls | None, limits: Http2Limits | None = None
) -> Http2Server:
    """A server on a free port."""
    limits = limits or Http2Limits(farewell_seconds=0.05)
    server = Http2Server({ECHO: service}, limits=limits, tls=tls)
    await server.start("127.0.0.1", 0)
    return server


async def shake(
    port: int, context: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client's TLS connection, by hand."""
    return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=NAME)

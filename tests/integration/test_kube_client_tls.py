"""A client's TLS connection to an API server that says nothing more."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fleet.certificates import Role
from fleet.errors import KubeUnavailable
from fleet.kube.client import open_client
from fleet.settings.model import KubernetesSettings
from tests.kube_clients import write_kubeconfig
from tests.tls_files import new_ca, write_set

SECONDS = 5.0

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(SECONDS)
        yield listening


def serve_once(listener: socket.socket, context: ssl.SSLContext, answer: bytes) -> None:
    """Take one request, say `answer`, then neither read nor write TLS; returns when the client's
    socket is gone.

    Raises:
        TimeoutError: it stays.
    """
    plain, _ = listener.accept()
    plain.settimeout(SECONDS)
    secure = context.wrap_socket(plain, server_side=True)
    assert secure.recv(65_536).startswith(b"GET /api/v1/pods")
    secure.sendall(answer)
    with socket.socket(fileno=secure.detach()) as bare:
        bare.settimeout(SECONDS)
        with contextlib.suppress(ConnectionResetError):
            while bare.recv(65_536):
                pass


@pytest.mark.parametrize("answer", [b"", HEAD], ids=["no head", "half a body"])
async def test_a_request_that_is_given_up_leaves_no_socket(
    tmp_path: Path, listener: socket.socket, answer: bytes
) -> None:
    """The connection ends when its request does, although the peer answers no farewell."""
    files = write_set(tmp_path / "tls", new_ca(), Role.COORDINATOR)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate_file, files.key_file)
    server = f"https://127.0.0.1:{listener.getsockname()[1]}"
    unverified: dict[str, Any] = {"insecure-skip-tls-verify": True}
    kubeconfig = write_kubeconfig(tmp_path, server, **unverified)
    client = await open_client(KubernetesSettings(kubeconfig=str(kubeconfig)))
    try:
        with ThreadPoolExecutor(1) as thread:
            served = asyncio.get_running_loop().run_in_executor(
                thread, serve_once, listener, context, answer
            )
            with pytest.raises(KubeUnavailable):
                await client.get("/api/v1/pods", timeout_seconds=0.5)
            await served
    finally:
        await client.close()

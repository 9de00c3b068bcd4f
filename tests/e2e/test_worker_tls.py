"""The worker's process and TLS: as it starts, what it says of itself, and how it ends."""

import signal
import socket
import ssl
import time
from pathlib import Path

from tests.http2_peer import Client, split
from tests.http2_tls import NAME, Authority
from tests.worker_process import WorkerProcess

GOAWAY = 7
EXPIRY = "epp_fleet_ext_proc_certificate_expiry_seconds"


def connected(worker: WorkerProcess, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A TLS connection on which both sides have said hello."""
    raw = socket.create_connection(("127.0.0.1", worker.ports["ext_proc"]), timeout=20)
    secure = context.wrap_socket(raw, server_hostname=NAME)
    client = Client()
    secure.sendall(client.out())
    while not client.acked:
        client.receive(secure.recv(65_536))
        secure.sendall(client.out())
    return secure


def seen(worker: WorkerProcess, context: ssl.SSLContext) -> bytes | None:
    """The certificate that the worker shows."""
    with connected(worker, context) as secure:
        return secure.getpeercert(binary_form=True)


def figure(worker: WorkerProcess, name: str) -> float:
    """One figure of its metrics page."""
    _, page = worker.get("/metrics")
    (line,) = [each for each in page.splitlines() if each.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


def test_a_worker_serves_tls_as_it_comes(tmp_path: Path) -> None:
    """Without a word in its settings, with a certificate that nobody can verify; SIGTERM sends the
    connection away by GOAWAY, and the exit is clean."""
    anyone = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anyone.check_hostname = False
    anyone.verify_mode = ssl.CERT_NONE
    anyone.set_alpn_protocols(["h2"])
    with WorkerProcess(tmp_path) as worker:
        worker.wait_up()
        secure = connected(worker, anyone)
        assert secure.selected_alpn_protocol() == "h2"
        assert 364 < figure(worker, EXPIRY) / 86_400 <= 365
        assert figure(worker, 'epp_fleet_ext_proc_handshakes_total{outcome="good"}') == 1
        worker.signal(signal.SIGTERM)
        heard = b""
        while data := secure.recv(65_536):
            heard += data
        goaways = [payload for kind, _, _, payload in split(heard) if kind == GOAWAY]
        assert goaways == [b"\x7f\xff\xff\xff" + bytes(4), bytes(8)]
        secure.close()
        assert worker.wait() == 0
        assert "Traceback" not in worker.log()


def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(tmp_path: Path) -> None:
    """What cert-manager does to a mounted Secret, and a mistake in between."""
    authority = Authority(tmp_path / "tls")
    files = {
        "tls": "require",
        "tls_certificate_file": authority.files.certificate_file,
        "tls_key_file": authority.files.key_file,
    }
    context = authority.client("h2")
    with WorkerProcess(tmp_path, settings={"worker": files}) as worker:
        worker.wait_up()
        first = seen(worker, context)
        Path(authority.files.key_file).write_text("half a file")
        deadline = time.monotonic() + 20
        while "new ext_proc certificate not taken" not in worker.log():
            assert seen(worker, context) == first
            assert time.monotonic() < deadline
        authority.renew()
        while seen(worker, context) == first:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "half a file" not in worker.log()


def test_settings_that_name_no_file_end_the_start(tmp_path: Path) -> None:
    """Exit code 2, and a line that names setting, file and reason."""
    files = {"tls_certificate_file": "/no/tls.crt", "tls_key_file": "/no/tls.key"}
    with WorkerProcess(tmp_path, settings={"worker": files}) as worker:
        assert worker.wait() == 2
        said = worker.log()
    assert "worker.tls_certificate_file: cannot read /no/tls.crt: No such file" in said

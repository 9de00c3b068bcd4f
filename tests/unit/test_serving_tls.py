"""The certificate that gateways see: made here, read from files, and followed when they change."""

import ssl
import time
from pathlib import Path

import pytest
from cryptography import x509

from fleet.certificates import Role, ServingTls, serving_tls
from fleet.certificates.authority import make_self_signed
from fleet.clock import SystemClock
from fleet.errors import SettingsError
from fleet.settings import Settings
from fleet.settings.checks import check
from fleet.settings.model import WorkerSettings
from tests.tls_files import new_ca, write_set

DAY = 86_400.0


class Hands(SystemClock):
    """A clock moved by hand, from now on."""

    def __init__(self) -> None:
        self.now = 0.0
        self._began = time.time()

    def monotonic(self) -> float:
        """As moved."""
        return self.now

    def wall(self) -> float:
        """As moved."""
        return self._began + self.now


def from_files(folder: Path, client_ca: str = "") -> WorkerSettings:
    """Settings that name the files of `write_set`."""
    return WorkerSettings(
        tls_certificate_file=str(folder / "tls.crt"),
        tls_key_file=str(folder / "tls.key"),
        tls_client_ca_file=client_ca,
    )


def seen(tls: ServingTls, client: ssl.SSLContext | None = None) -> x509.Certificate:
    """What a client gets to see in a handshake with the present context."""
    if client is None:
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    left = client.wrap_bio(to_client, to_server)
    right = tls.context().wrap_bio(to_server, to_client, server_side=True)
    done = 0
    for _ in range(6):
        for side in (left, right):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                continue
    assert done
    certificate = left.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate)


def test_makes_a_certificate_of_its_own_in_no_time() -> None:
    """ECDSA P-256 for the worker's name and addresses, for a year, TLS 1.2 at least, h2 by ALPN."""
    settings = Settings(worker=WorkerSettings(advertise_host="10.1.2.3"))
    tls = serving_tls(settings, Hands())
    assert tls is not None
    assert not tls.required
    certificate = seen(tls)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    wanted = ["worker.default.epp-fleet.internal", "localhost"]
    assert names.get_values_for_type(x509.DNSName) == wanted
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["10.1.2.3"]
    assert certificate.signature_algorithm_oid._name == "ecdsa-with-SHA256"
    assert tls.expiry_seconds() == pytest.approx(365 * DAY)
    assert tls.context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_its_own_certificate_is_made_anew_before_it_ends() -> None:
    """After two thirds of its life, by the next handshake."""
    clock = Hands()
    tls = ServingTls(WorkerSettings(), ["localhost"], clock)
    first = seen(tls)
    clock.now = 240 * DAY
    assert seen(tls) == first
    clock.now = 244 * DAY
    assert seen(tls) != first
    assert tls.expiry_seconds() == pytest.approx(365 * DAY)


def test_off_is_no_tls() -> None:
    """Nothing is made or read."""
    assert serving_tls(Settings(worker=WorkerSettings(tls="off")), Hands()) is None


def test_files_are_followed_within_a_second(tmp_path: Path) -> None:
    """A new set counts for the next handshake; half of one does not, and the old one stays."""
    clock, ca = Hands(), new_ca()
    write_set(tmp_path, ca, Role.WORKER)
    tls = ServingTls(from_files(tmp_path), ["localhost"], clock)
    first = seen(tls)
    assert tls.expiry_seconds() == pytest.approx(90 * DAY, abs=10)
    (tmp_path / "tls.key").write_bytes(make_self_signed(["x"], time.time()).key)
    clock.now += 1.0
    assert seen(tls) == first
    write_set(tmp_path, ca, Role.WORKER)
    clock.now += 0.5
    assert seen(tls) == first
    clock.now += 0.5
    assert seen(tls) != first
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).unlink()
    clock.now += 1.0
    seen(tls)


def test_a_client_ca_makes_tls_mutual(tmp_path: Path) -> None:
    """Required then, whatever `worker.tls` says; only certificates of that CA are taken."""
    ca = new_ca()
    gateway = write_set(tmp_path / "gateway", ca, Role.COORDINATOR)
    tls = ServingTls(WorkerSettings(tls_client_ca_file=gateway.ca_file), ["localhost"], Hands())
    assert tls.required
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        seen(tls, stranger)
    stranger.load_cert_chain(gateway.certificate_file, gateway.key_file)
    seen(tls, stranger)


@pytest.mark.parametrize(
    ("worker", "said"),
    [
        (
            WorkerSettings(tls_key_file="/k"),
            "worker.tls_certificate_file: is empty, but worker.tls_key_file",
        ),
        (WorkerSettings(tls_certificate_file="/c"), "worker.tls_key_file: is empty"),
        (WorkerSettings(tls="off", tls_client_ca_file="/ca"), "worker.tls: is off, but"),
    ],
)
def test_settings_that_do_not_go_together(worker: WorkerSettings, said: str) -> None:
    """Both files or none, and none without TLS."""
    findings = check(Settings(worker=worker))
    assert [f"{each.fields[0]}: {each.message}".startswith(said) for each in findings] == [True]


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    """Missing, no PEM, another's key: the setting, the file and what is wrong; never the key."""
    with pytest.raises(SettingsError, match=r"worker.tls_certificate_file: cannot read"):
        ServingTls(from_files(tmp_path), [], Hands())
    write_set(tmp_path, new_ca(), Role.WORKER)
    (tmp_path / "tls.key").write_text("secret")
    with pytest.raises(SettingsError, match=r"worker.tls_key_file: .* holds no private key"):
        ServingTls(from_files(tmp_path), [], Hands())
    (tmp_path / "tls.key").write_bytes(make_self_signed(["x"], time.time()).key)
    with pytest.raises(SettingsError, match=r"worker.tls_key_file: .* is not the key of"):
        ServingTls(from_files(tmp_path), [], Hands())
    write_set(tmp_path, new_ca(), Role.WORKER)
    (tmp_path / "ca.crt").write_text("nothing")
    with pytest.raises(SettingsError, match=r"worker.tls_client_ca_file: .* holds no certificate"):
        ServingTls(from_files(tmp_path, str(tmp_path / "ca.crt")), [], Hands())

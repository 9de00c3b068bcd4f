"""The fleet's own CA, the files of a process, and what counts as a good set of them."""

import base64
from pathlib import Path

import pytest

from fleet.certificates import Certificates, Role
from fleet.certificates.authority import (
    CA_DAYS,
    DAYS,
    Pair,
    is_due,
    make_ca,
    make_certificate,
    renewed_ca,
)
from fleet.certificates.folder import write_folder
from fleet.cli.main import main
from fleet.errors import KubeConflict, SettingsError
from fleet.kube.certificate_secrets import keep_secrets
from fleet.settings.model import SecuritySettings
from tests.memory_kube import NAMESPACE, MemoryApiServer, MemoryKube
from tests.stepped_clock import SteppedClock

DAY = 86_400.0
NOW = 1_800_000_000.0


def security(folder: Path) -> SecuritySettings:
    return SecuritySettings(
        ca_file=str(folder / "ca.crt"),
        certificate_file=str(folder / "tls.crt"),
        key_file=str(folder / "tls.key"),
    )


def put(folder: Path, ca: Pair, pair: Pair) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "ca.crt").write_bytes(ca.certificate)
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)


def worker_files(folder: Path, now: float = NOW) -> tuple[SecuritySettings, Pair]:
    """A worker's files of the fleet f; returns the CA too."""
    ca = make_ca("f", now)
    put(folder, ca, make_certificate(ca, Role.WORKER, "f", now))
    return security(folder), ca


# -- the CA ---------------------------------------------------------------------------------------


def test_a_certificate_is_replaced_after_two_thirds_of_its_life() -> None:
    """90 days, made now: not due on day 59, due on day 61."""
    ca = make_ca("f", NOW)
    pair = make_certificate(ca, Role.WORKER, "f", NOW)
    assert not is_due(pair, ca, Role.WORKER, "f", NOW + 59 * DAY)
    assert is_due(pair, ca, Role.WORKER, "f", NOW + 61 * DAY)


@pytest.mark.parametrize("change", ["role", "fleet", "ca", "key", "damaged"])
def test_a_certificate_of_somebody_else_is_replaced(change: str) -> None:
    """Whatever does not fit: role, fleet, CA, key, or what is no certificate."""
    ca = make_ca("f", NOW)
    pair = make_certificate(ca, Role.WORKER, "f", NOW)
    role = Role.COORDINATOR if change == "role" else Role.WORKER
    fleet = "g" if change == "fleet" else "f"
    if change == "ca":
        ca = make_ca("f", NOW)
    if change == "key":
        pair = Pair(pair.certificate, make_certificate(ca, role, "f", NOW).key)
    if change == "damaged":
        pair = Pair(b"nothing", pair.key)
    assert is_due(pair, ca, role, fleet, NOW)


def test_a_renewed_ca_is_still_the_issuer_of_what_it_signed_before() -> None:
    """It is renewed in its last year, and keeps key and name."""
    ca = make_ca("f", NOW)
    assert renewed_ca(ca, "f", NOW + 8 * 365 * DAY) is ca
    later = NOW + (CA_DAYS - 300) * DAY
    renewed = renewed_ca(ca, "f", later)
    assert renewed.certificate != ca.certificate
    assert renewed.key == ca.key
    old = make_certificate(ca, Role.WORKER, "f", later)
    assert not is_due(old, renewed, Role.WORKER, "f", later)


# -- in a folder ----------------------------------------------------------------------------------


def test_files_are_their_owners_alone_and_are_never_overwritten(tmp_path: Path) -> None:
    """Mode 0600, and with one of them there nothing at all is written."""
    folder = tmp_path / "made"
    made = write_folder(folder, "f", NOW)
    names = {"ca.crt", "ca.key"} | {
        f"{role}/{name}"
        for role in ("coordinator", "worker")
        for name in ("ca.crt", "tls.crt", "tls.key")
    }
    assert {str(path.relative_to(folder)) for path in made} == names
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    before = {path: path.read_bytes() for path in made}
    for path in made[1:]:
        path.unlink()
    with pytest.raises(SettingsError, match=r"ca\.crt exists; nothing was written"):
        write_folder(folder, "f", NOW)
    assert made[0].read_bytes() == before[made[0]]
    assert not any(path.exists() for path in made[1:])


def test_the_command_says_what_it_made_or_why_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files for the fleet that was named; a second time exit code 2 and one line."""
    argv = ["ca", "init", "--out", str(tmp_path), "--fleet", "prod"]
    assert main(argv) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == str(tmp_path / "ca.crt")
    assert len(said) == 8
    Certificates(security(tmp_path / "worker"), "prod", Role.WORKER, SteppedClock())
    assert main(argv) == 2
    assert "nothing was written" in capsys.readouterr().err


# -- as Secrets -----------------------------------------------------------------------------------


async def secret(api: MemoryKube, name: str) -> dict[str, bytes]:
    found = await api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")
    return {key: base64.b64decode(value) for key, value in found["data"].items()}


async def test_secrets_are_made_once_and_renewed_when_due() -> None:
    """Three at first, none the next day, the two roles after two thirds of 90 days."""
    api = MemoryKube(MemoryApiServer())
    three = ("fleet-ca", "fleet-coordinator-tls", "fleet-worker-tls")
    assert await keep_secrets(api, "fleet", "f", NOW) == three
    worker = await secret(api, "fleet-worker-tls")
    ca = await secret(api, "fleet-ca")
    assert worker["ca.crt"] == ca["ca.crt"]
    assert "ca.key" not in worker
    assert await keep_secrets(api, "fleet", "f", NOW + DAY) == ()
    assert await keep_secrets(api, "fleet", "f", NOW + 61 * DAY) == three[1:]
    assert await secret(api, "fleet-ca") == ca
    assert (await secret(api, "fleet-worker-tls"))["tls.crt"] != worker["tls.crt"]


async def test_of_two_that_write_at_once_one_is_refused() -> None:
    """The other has made the CA in between: ours does not land over it."""
    server = MemoryApiServer()
    api = MemoryKube(server)
    meanwhile = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "fleet-ca", "namespace": NAMESPACE},
        "data": {"ca.crt": "dGhlaXJz"},
    }

    def make() -> None:
        server.store.put(meanwhile)

    server.before_write = make
    with pytest.raises(KubeConflict):
        await keep_secrets(api, "fleet", "f", NOW)
    assert await secret(api, "fleet-ca") == {"ca.crt": b"theirs"}


async def test_a_secret_that_is_not_ours_is_left_alone() -> None:
    """Whoever made it, it has no label of a fleet."""
    server = MemoryApiServer()
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "fleet-ca"}}
    await MemoryKube(server).create(path, theirs)
    with pytest.raises(SettingsError, match="not this fleet's"):
        await keep_secrets(MemoryKube(server), "fleet", "f", NOW)


async def test_a_secret_of_another_fleet_is_left_alone() -> None:
    """Two fleets under one name would take turns at each other's certificates."""
    api = MemoryKube(MemoryApiServer())
    await keep_secrets(api, "fleet", "f", NOW)
    before = await secret(api, "fleet-worker-tls")
    with pytest.raises(SettingsError, match=r"has label .*/fleet=f"):
        await keep_secrets(api, "fleet", "g", NOW)
    assert await secret(api, "fleet-worker-tls") == before


# -- the files of a process -----------------------------------------------------------------------


def test_a_set_that_does_not_go_together_is_refused(tmp_path: Path) -> None:
    """Each message names the setting and the file."""
    settings, ca = worker_files(tmp_path)
    clock = SteppedClock()
    with pytest.raises(SettingsError, match=r"is for worker\.f.*, not for coordinator\.f\.epp"):
        Certificates(settings, "f", Role.COORDINATOR, clock)
    with pytest.raises(SettingsError, match=r"not for worker\.g\.epp-fleet\.internal"):
        Certificates(settings, "g", Role.WORKER, clock)
    other = make_certificate(ca, Role.WORKER, "f", NOW)
    (tmp_path / "tls.key").write_bytes(other.key)
    with pytest.raises(SettingsError, match=r"security\.key_file: .* is not the key of"):
        Certificates(settings, "f", Role.WORKER, clock)
    (tmp_path / "tls.key").write_text("SECRET")
    with pytest.raises(SettingsError, match=r"holds no private key in PEM$"):
        Certificates(settings, "f", Role.WORKER, clock)
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(SettingsError, match=r"security\.ca_file: cannot read .*ca\.crt: No such"):
        Certificates(settings, "f", Role.WORKER, clock)


def test_new_files_are_taken_when_they_go_together(tmp_path: Path) -> None:
    """A half-written set leaves the last good one in use; the key never shows."""
    settings, ca = worker_files(tmp_path)
    certificates = Certificates(settings, "f", Role.WORKER, SteppedClock())
    first = certificates.bundle()
    assert certificates.changed(first) is None
    newer = make_certificate(ca, Role.WORKER, "f", NOW + DAY)
    (tmp_path / "tls.crt").write_bytes(newer.certificate)
    assert certificates.bundle() is first
    (tmp_path / "tls.key").write_bytes(newer.key)
    second = certificates.changed(first)
    assert second is not None
    assert second.certificate == newer.certificate
    assert second.expires == NOW + DAY + DAYS * DAY
    assert "PRIVATE" not in repr(second)


def test_files_that_are_away_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The last good set stays in use meanwhile; what comes back is taken."""
    settings, ca = worker_files(tmp_path)
    certificates = Certificates(settings, "f", Role.WORKER, SteppedClock())
    first = certificates.bundle()
    (tmp_path / "tls.key").unlink()
    caplog.clear()
    assert all(certificates.bundle() is first for _ in range(5))
    (record,) = caplog.records
    assert record.getMessage() == "new certificate not taken"
    newer = make_certificate(ca, Role.WORKER, "f", NOW + DAY)
    put(tmp_path, ca, newer)
    assert certificates.bundle().key == newer.key


def test_a_swapped_folder_is_seen(tmp_path: Path) -> None:
    """As the kubelet does it: a symbolic link to a folder is replaced by another."""
    old, new = tmp_path / "old", tmp_path / "new"
    worker_files(old)
    worker_files(new)
    link = tmp_path / "data"
    link.symlink_to(old)
    certificates = Certificates(security(link), "f", Role.WORKER, SteppedClock())
    (tmp_path / "next").symlink_to(new)
    (tmp_path / "next").replace(link)
    assert certificates.bundle().certificate == (new / "tls.crt").read_bytes()


def test_expiry_is_that_of_the_certificate_or_of_the_last_ca(tmp_path: Path) -> None:
    """Seconds from now, of the newest files, though nobody has dialled since they came."""
    settings, ca = worker_files(tmp_path)
    clock = SteppedClock()
    certificates = Certificates(settings, "f", Role.WORKER, clock)
    left = NOW + DAYS * DAY - clock.wall()
    assert certificates.expiry_seconds() == pytest.approx(left, abs=5)
    put(tmp_path, ca, make_certificate(ca, Role.WORKER, "f", NOW + DAY))
    assert certificates.expiry_seconds() == pytest.approx(left + DAY, abs=5)

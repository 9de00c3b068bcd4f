"""Certificate files for tests: a CA, and sets of files that are right or wrong in one way."""

import time
from pathlib import Path

from fleet.certificates import Certificates, Role
from fleet.certificates.authority import Pair, make_ca, make_certificate
from fleet.clock import SystemClock
from fleet.settings.model import SecuritySettings

FLEET = "default"
EXPIRED_SECONDS = 100 * 86_400.0
"""Made so long ago, a certificate of 90 days is over."""


def new_ca(fleet: str = FLEET) -> Pair:
    """A CA that is good now."""
    return make_ca(fleet, time.time() - 2 * EXPIRED_SECONDS)


def write_set(
    folder: Path,
    ca: Pair,
    role: Role,
    *,
    fleet: str = FLEET,
    trusted: bytes | None = None,
    age_seconds: float = 0.0,
) -> SecuritySettings:
    """Write ca.crt, tls.crt and tls.key into `folder`, each by a rename.

    Args:
        ca: signs the certificate.
        trusted: what ca.crt holds; None = that CA.
        age_seconds: how long ago the certificate was made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pair = make_certificate(ca, role, fleet, time.time() - age_seconds)
    contents = {
        "ca.crt": ca.certificate if trusted is None else trusted,
        "tls.crt": pair.certificate,
        "tls.key": pair.key,
    }
    for name, content in contents.items():
        (folder / f"{name}.new").write_bytes(content)
        (folder / f"{name}.new").replace(folder / name)
    return SecuritySettings(
        ca_file=str(folder / "ca.crt"),
        certificate_file=str(folder / "tls.crt"),
        key_file=str(folder / "tls.key"),
    )


def certificates(
    folder: Path,
    ca: Pair,
    role: Role,
    *,
    fleet: str = FLEET,
    trusted: bytes | None = None,
    age_seconds: float = 0.0,
) -> Certificates:
    """The files of `write_set`, as a process of that role opens them."""
    settings = write_set(folder, ca, role, fleet=fleet, trusted=trusted, age_seconds=age_seconds)
    return Certificates(settings, fleet, role, SystemClock())

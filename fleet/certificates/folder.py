"""The fleet's CA and certificates as files in a folder."""

import os
from pathlib import Path

from fleet.certificates.authority import make_ca, make_certificate
from fleet.certificates.names import Role
from fleet.errors import SettingsError

CA_CERTIFICATE, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""As in a Secret of type kubernetes.io/tls that cert-manager writes."""

CA_KEY = "ca.key"


def write_folder(folder: Path, fleet: str, now: float) -> tuple[Path, ...]:
    """Make a CA and a certificate for each role; files are readable by their owner alone.

    Args:
        now: wall seconds.

    Returns:
        The files.

    Raises:
        SettingsError: one of them exists (nothing is written then), or cannot be written.
    """
    ca = make_ca(fleet, now)
    contents = {folder / CA_CERTIFICATE: ca.certificate, folder / CA_KEY: ca.key}
    for role in Role:
        pair = make_certificate(ca, role, fleet, now)
        contents[folder / role.value / CA_CERTIFICATE] = ca.certificate
        contents[folder / role.value / CERTIFICATE] = pair.certificate
        contents[folder / role.value / KEY] = pair.key
    there = [str(path) for path in contents if path.exists()]
    if there:
        raise SettingsError(
            [f"--out: {', '.join(there)} exists; nothing was written. Choose another folder"]
        )
    try:
        for path, content in contents.items():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(path, content)
    except OSError as error:
        raise SettingsError([f"--out: cannot write {error.filename}: {error.strerror}"]) from None
    return tuple(contents)


def _write(path: Path, content: bytes) -> None:
    # Exclusive: whoever made the file in the meantime keeps it.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)

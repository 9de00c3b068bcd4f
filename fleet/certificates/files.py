"""A process' own certificate and the fleet's CA, read from files and read again when they change.

What replaces them (cert-manager, a Job through a Secret) may be seen half done, or may be wrong: a
set is taken only if it was read whole, its key fits and its certificate names this role of this
fleet. Until one is, the last good one stays.
"""

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from fleet.certificates.names import Role, peer_name
from fleet.clock import Clock
from fleet.errors import SettingsError
from fleet.settings.model import SecuritySettings, Settings

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 1024 * 1024
"""A bundle of a thousand CAs; whatever is longer is no PEM of ours."""

_Marks = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """One set of files as PEM.

    Attributes:
        expires: wall seconds at which the certificate, or every CA, has expired.
    """

    ca: bytes
    certificate: bytes
    key: bytes
    expires: float

    def __repr__(self) -> str:
        """Without the key."""
        return f"Bundle(expires={self.expires})"


class Certificates:
    """The files of one process. Safe to ask from several threads.

    Asking costs three `stat` calls, and reading three small files after a change: they are on the
    node (a Secret's volume is in memory), so the event loop may do it.
    """

    def __init__(self, security: SecuritySettings, fleet: str, role: Role, clock: Clock) -> None:
        """Read them.

        Raises:
            SettingsError: a file cannot be read, or they do not go together.
        """
        self.role = role
        self._fleet = fleet
        self._clock = clock
        self.ca_file = Path(security.ca_file)
        self.certificate_file = Path(security.certificate_file)
        self.key_file = Path(security.key_file)
        self._lock = threading.Lock()
        marks = self._marks()
        self._bundle = self._read()
        self._seen = marks
        if self.expiry_seconds() <= 0:
            log.warning("certificate has expired", extra={"file": str(self.certificate_file)})

    def name_of(self, role: Role) -> str:
        """What a certificate of that role in this fleet must name."""
        return peer_name(role, self._fleet)

    def bundle(self) -> Bundle:
        """The newest good set."""
        with self._lock:
            self._look()
            return self._bundle

    def changed(self, known: Bundle) -> Bundle | None:
        """The newest good set if it is not `known`."""
        newest = self.bundle()
        return None if newest is known else newest

    def expiry_seconds(self) -> float:
        """How long the newest good set is still good; negative once it is not."""
        return self.bundle().expires - self._clock.wall()

    def _look(self) -> None:
        marks = self._marks_or_none()
        if marks == self._seen:
            return
        try:
            bundle = self._read()
        except SettingsError as error:
            # Told once; the next change is looked at again.
            self._seen = marks
            log.warning("new certificate not taken", extra={"problem": "; ".join(error.problems)})
            return
        if self._marks_or_none() != marks:
            return  # they changed while they were read: the next look takes them
        self._seen = marks
        if bundle != self._bundle:
            self._bundle = bundle
            left = round(bundle.expires - self._clock.wall())
            log.info("certificate read anew", extra={"expires_in_seconds": left})

    def _files(self) -> tuple[tuple[str, Path], ...]:
        return (
            ("security.ca_file", self.ca_file),
            ("security.certificate_file", self.certificate_file),
            ("security.key_file", self.key_file),
        )

    def _marks(self) -> _Marks:
        marks = []
        for field, path in self._files():
            try:
                found = path.stat()
            except OSError as error:
                raise _unreadable(field, path, error) from None
            marks.append((found.st_mtime_ns, found.st_ino, found.st_size))
        return tuple(marks)

    def _marks_or_none(self) -> _Marks:
        try:
            return self._marks()
        except SettingsError:
            return ()

    def _read(self) -> Bundle:
        # Here, so that only who has certificates pays for the library (40 ms).
        from fleet.certificates import pem

        ca, certificate, key = (read_file(field, path) for field, path in self._files())
        facts = pem.read(
            pem.Named("security.ca_file", self.ca_file, ca),
            pem.Named("security.certificate_file", self.certificate_file, certificate),
            pem.Named("security.key_file", self.key_file, key),
        )
        wanted = self.name_of(self.role)
        if wanted not in facts.names:
            raise SettingsError(
                [
                    f"security.certificate_file: {self.certificate_file} is for "
                    f"{', '.join(facts.names) or 'nobody by DNS name'}, not for {wanted}"
                ]
            )
        return Bundle(ca, certificate, key, facts.expires)


def open_certificates(settings: Settings, role: Role, clock: Clock) -> Certificates | None:
    """Those that the settings name; None if they name none.

    Raises:
        SettingsError: a file cannot be read, or they do not go together.
    """
    if not settings.security.certificate_file:
        return None
    return Certificates(settings.security, settings.fleet, role, clock)


def read_file(field: str, path: Path) -> bytes:
    """The file that a setting names.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise _unreadable(field, path, error) from None


def _unreadable(field: str, path: Path, error: OSError) -> SettingsError:
    return SettingsError([f"{field}: cannot read {path}: {error.strerror or error}"])

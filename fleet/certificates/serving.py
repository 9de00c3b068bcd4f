"""The certificate of the port that gateways connect to: files, or one that is made here.

Gateways that insist on TLS to the picker hardly ever check whom they reach, so that a worker
without files makes a certificate of its own. Files are read again when they change, and a set is
taken only if it was read whole and its key fits; until one is, the last good one stays. What a
handshake once used, its connection keeps.
"""

import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.certificates.files import read_file
from fleet.certificates.names import Role, peer_name
from fleet.clock import Clock
from fleet.errors import SettingsError
from fleet.settings.model import Settings, WorkerSettings

if TYPE_CHECKING:
    from fleet.certificates.pem import Named

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the files are looked at, if handshakes ask."""

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: those that HTTP/2 allows (RFC 9113, appendix A). TLS 1.3 has only good ones."""

_FIELDS = ("worker.tls_certificate_file", "worker.tls_key_file", "worker.tls_client_ca_file")

_Marks = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Made:
    """One context, and how long its certificate is good.

    Attributes:
        expires: wall seconds.
        renew: wall seconds from which on it is to be replaced.
    """

    context: ssl.SSLContext
    expires: float
    renew: float


class ServingTls:
    """How one worker's port speaks TLS; see `epp_worker.http2.contract.Tls`.

    Asking costs a look at a clock, and once a second three `stat` calls of small files that are on
    the node: the event loop may do it.

    Args:
        names: what a certificate made here is for, DNS names and IP addresses.
    """

    def __init__(self, settings: WorkerSettings, names: Sequence[str], clock: Clock) -> None:
        """Read the files, or make a certificate.

        Raises:
            SettingsError: a file cannot be read, or they do not go together.
        """
        files = (
            settings.tls_certificate_file,
            settings.tls_key_file,
            settings.tls_client_ca_file,
        )
        self.required = settings.tls == "require" or bool(settings.tls_client_ca_file)
        named = zip(_FIELDS, files, strict=True)
        self._files = [(name, Path(path)) for name, path in named if path]
        self._names = names
        self._clock = clock
        self._make: Callable[[], _Made] = (
            self._from_files if settings.tls_certificate_file else self._from_here
        )
        self._marks = self._look()
        self._made = self._make()
        self._looked = clock.monotonic()
        if self.expiry_seconds() <= 0:
            log.warning("ext_proc certificate has expired", extra={"file": str(self._files[0][1])})

    def context(self) -> ssl.SSLContext:
        """What the next handshake uses."""
        now = self._clock.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._refresh()
        return self._made.context

    def expiry_seconds(self) -> float:
        """How long the certificate is still good; negative once it is not."""
        return self._made.expires - self._clock.wall()

    def _refresh(self) -> None:
        marks = self._look()
        if marks == self._marks and self._clock.wall() < self._made.renew:
            return
        try:
            made = self._make()
        except SettingsError as error:
            self._marks = marks  # told once; the next change is looked at again
            log.warning(
                "new ext_proc certificate not taken", extra={"problem": "; ".join(error.problems)}
            )
            return
        if self._look() != marks:
            return  # they changed while they were read: the next look takes them
        self._marks, self._made = marks, made
        log.info(
            "ext_proc certificate read anew",
            extra={"expires_in_seconds": round(self.expiry_seconds())},
        )

    def _look(self) -> _Marks:
        marks = []
        for _, path in self._files:
            try:
                found = path.stat()
            except OSError:
                marks.append((0, 0, 0))
            else:
                marks.append((found.st_mtime_ns, found.st_ino, found.st_size))
        return tuple(marks)

    def _from_files(self) -> _Made:
        # Here, so that only who has certificates pays for the library (40 ms).
        from fleet.certificates import pem

        certificate, key, *authorities = self._contents()
        expires = pem.read_own(certificate, key)
        context = _context(certificate, key.data, authorities)
        return _Made(context, expires, float("inf"))

    def _from_here(self) -> _Made:
        from fleet.certificates import pem
        from fleet.certificates.authority import SELF_SIGNED_DAYS, make_self_signed

        now = self._clock.wall()
        pair = make_self_signed(self._names, now)
        certificate = pem.Named("worker.tls", Path("its own certificate"), pair.certificate)
        context = _context(certificate, pair.key, self._contents())
        life = SELF_SIGNED_DAYS * 86_400.0
        return _Made(context, now + life, now + life * 2 / 3)

    def _contents(self) -> "list[Named]":
        from fleet.certificates.pem import Named

        return [Named(field, path, read_file(field, path)) for field, path in self._files]


def serving_tls(settings: Settings, clock: Clock) -> ServingTls | None:
    """As the settings of `worker.tls...` say; None if it is off.

    Raises:
        SettingsError: a file cannot be read, or they do not go together.
    """
    own = settings.worker
    if own.tls == "off":
        return None
    names = [peer_name(Role.WORKER, settings.fleet), "localhost"]
    names += [host for host in (own.advertise_host,) if host]
    return ServingTls(own, names, clock)


def _context(certificate: "Named", key: bytes, authorities: "Sequence[Named]") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["h2"])
    try:
        with _readable(key + b"\n" + certificate.data) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        reason = error.reason or "unknown"
        raise SettingsError(
            [f"{certificate.field}: {certificate.path} cannot be used for TLS: {reason}"]
        ) from None
    for trusted in authorities:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(cadata=trusted.data.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise SettingsError(
                [f"{trusted.field}: {trusted.path} holds no certificate in PEM"]
            ) from None
    return context


@contextlib.contextmanager
def _readable(content: bytes) -> Iterator[str]:
    """A path under which OpenSSL reads `content`: in memory where the system can do that.

    `ssl` takes a chain from a file alone, and reading the files again would tear apart what was
    checked as one set.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile("wb") as named:
            named.write(content)
            named.flush()
            yield named.name
        return
    with os.fdopen(os.memfd_create("epp-fleet-tls"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"

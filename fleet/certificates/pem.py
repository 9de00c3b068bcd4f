"""What stands in PEM files: when, for whom, and whether key and certificate belong together."""

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fleet.errors import SettingsError


@dataclass(frozen=True, slots=True)
class Named:
    """A file's content, and where it came from."""

    field: str
    path: Path
    data: bytes

    def __repr__(self) -> str:
        """Without the content: it may be a key."""
        return f"Named({self.field}, {self.path})"


@dataclass(frozen=True, slots=True)
class Facts:
    """What counts of a certificate.

    Attributes:
        names: the DNS names that it is for.
        expires: wall seconds at which it, or the last CA, has expired.
    """

    names: tuple[str, ...]
    expires: float


def read(ca: Named, certificate: Named, key: Named) -> Facts:
    """Read one set of files.

    Raises:
        SettingsError: one is no PEM, or the key is not the certificate's.
    """
    authorities = _certificates(ca)
    own = _own(certificate, key)
    last_ca = max(one.not_valid_after_utc.timestamp() for one in authorities)
    return Facts(dns_names(own), min(own.not_valid_after_utc.timestamp(), last_ca))


def read_own(certificate: Named, key: Named) -> float:
    """The wall seconds at which a certificate has expired that is read without its CA.

    Raises:
        SettingsError: one is no PEM, or the key is not the certificate's.
    """
    return _own(certificate, key).not_valid_after_utc.timestamp()


def dns_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """The DNS names that a certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(names.value.get_values_for_type(x509.DNSName))


def _own(certificate: Named, key: Named) -> x509.Certificate:
    own = _certificates(certificate)[0]
    if _private_key(key).public_key() != own.public_key():
        raise SettingsError([f"{key.field}: {key.path} is not the key of {certificate.path}"])
    return own


def _certificates(file: Named) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(file.data)
    except ValueError:
        raise SettingsError([f"{file.field}: {file.path} holds no certificate in PEM"]) from None


def _private_key(file: Named) -> PrivateKeyTypes:
    try:
        return load_pem_private_key(file.data, None)
    except (ValueError, TypeError):
        # Not the library's text: nothing of a key's file may reach a log.
        raise SettingsError([f"{file.field}: {file.path} holds no private key in PEM"]) from None

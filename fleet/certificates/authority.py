"""A CA of the fleet's own, and certificates of its roles. ECDSA P-256 throughout.

The CA signs nothing but certificates of this fleet, so it needs no intermediates and no revocation:
a certificate lives 90 days and is replaced after two thirds of that. A CA that is renewed keeps its
key and its name, so what it signed before and after is good under either certificate of it.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fleet.certificates.names import Role, peer_name
from fleet.certificates.pem import dns_names
from fleet.errors import SettingsError

DAYS = 90
"""Of a role's certificate."""

CA_DAYS = 3650
CA_RENEW_DAYS = 365
"""A CA that lives shorter than this is renewed."""

SELF_SIGNED_DAYS = 365
"""Of a certificate that a worker makes for itself."""

RENEW_SHARE = 1 / 3
"""A certificate with less than this of its life left is replaced."""

SKEW = timedelta(minutes=5)
"""Clocks of nodes differ: a certificate is good a little before it was made."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Without the key."""
        return "Pair(...)"


def make_ca(fleet: str, now: float) -> Pair:
    """A new CA of this fleet.

    Args:
        now: wall seconds.
    """
    return _self_signed(fleet, ec.generate_private_key(ec.SECP256R1()), now)


def renewed_ca(ca: Pair, fleet: str, now: float) -> Pair:
    """The same CA, good for longer; the very same object while it need not be."""
    certificate = _certificate(ca)
    left = certificate.not_valid_after_utc.timestamp() - now
    if left > timedelta(days=CA_RENEW_DAYS).total_seconds():
        return ca
    return _self_signed(fleet, _key(ca), now)


def make_certificate(ca: Pair, role: Role, fleet: str, now: float) -> Pair:
    """A certificate for a role of this fleet, good for both ends of a connection."""
    issuer, signer = _certificate(ca), _key(ca)
    key = ec.generate_private_key(ec.SECP256R1())
    name = peer_name(role, fleet)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    made = (
        # Empty: the name is an alternative name, and a common name ends at 64 characters.
        _builder(x509.Name([]), issuer.subject, key.public_key(), now, DAYS)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(_authority_id(signer), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return Pair(_pem(made), _key_pem(key))


def make_self_signed(names: Sequence[str], now: float) -> Pair:
    """A server's certificate that nobody vouches for.

    Args:
        names: DNS names and IP addresses.
        now: wall seconds.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "epp-fleet worker")])
    made = (
        _builder(own, own, key.public_key(), now, SELF_SIGNED_DAYS)
        .add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(made), _key_pem(key))


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return x509.DNSName(text)


def is_due(pair: Pair, ca: Pair, role: Role, fleet: str, now: float) -> bool:
    """Whether a role's certificate is to be replaced: soon over, of another CA or for another."""
    try:
        certificate = _certificate(pair)
        if _key(pair).public_key() != certificate.public_key():
            return True
        certificate.verify_directly_issued_by(_certificate(ca))
    except (SettingsError, ValueError, TypeError, InvalidSignature):
        return True
    life = (certificate.not_valid_after_utc - certificate.not_valid_before_utc).total_seconds()
    left = certificate.not_valid_after_utc.timestamp() - now
    return left < RENEW_SHARE * life or peer_name(role, fleet) not in dns_names(certificate)


def _self_signed(fleet: str, key: ec.EllipticCurvePrivateKey, now: float) -> Pair:
    # An organizational unit, since a common name ends at 64 characters.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "epp-fleet"),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, fleet),
        ]
    )
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = (
        _builder(name, name, key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(own, critical=False)
        .add_extension(_authority_id(key), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(_pem(made), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: float, days: int
) -> x509.CertificateBuilder:
    moment = datetime.fromtimestamp(now, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment - SKEW)
        .not_valid_after(moment + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_id(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _certificate(pair: Pair) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pair.certificate)
    except ValueError:
        raise SettingsError(["the certificate cannot be read: no PEM"]) from None


def _key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pair.key, None)
    except (ValueError, TypeError):
        raise SettingsError(["the private key cannot be read: no PEM"]) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingsError(["the private key is not of an elliptic curve; this CA is another's"])
    return key

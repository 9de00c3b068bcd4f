"""Certificates: of the internal port, with a CA of the fleet's own, and of the gateways' port."""

from fleet.certificates.files import Bundle, Certificates, open_certificates
from fleet.certificates.names import Role, peer_name
from fleet.certificates.serving import ServingTls, serving_tls

__all__ = [
    "Bundle",
    "Certificates",
    "Role",
    "ServingTls",
    "open_certificates",
    "peer_name",
    "serving_tls",
]

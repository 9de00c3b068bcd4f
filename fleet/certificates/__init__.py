"""Certificates of the internal port: names, files, and a CA of the fleet's own."""

from fleet.certificates.files import Bundle, Certificates, open_certificates
from fleet.certificates.names import Role, peer_name

__all__ = ["Bundle", "Certificates", "Role", "open_certificates", "peer_name"]

"""Why a peer cannot be reached by TLS, in words.

The gRPC library tells what it thinks of a peer's certificate, but of a peer that turned ours down
only that the socket was closed. So after a failed dial one handshake more is made, with the
standard library, whose errors name the alert that the peer sent.
"""

import asyncio
import contextlib
import ssl

from fleet.certificates import Certificates, Role

PROBE_SECONDS = 1.0

_ALERTS = {
    "CERTIFICATE_REQUIRED": "it asks for a certificate, and ours did not reach it",
    "UNKNOWN_CA": "it does not know the CA of our certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_UNKNOWN": "it does not accept our certificate",
    "BAD_CERTIFICATE": "it does not accept our certificate",
    "DECRYPT_ERROR": "it does not know the CA of our certificate",
}


async def fault(address: str, certificates: Certificates, role: Role) -> str | None:
    """What is wrong between us and this peer; None if nothing is, or if it does not answer."""
    name = certificates.name_of(role)
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            context = await asyncio.to_thread(_context, certificates)
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, server_hostname=name
            )
            try:
                # The peer judges our certificate after we have judged its own: it says so here.
                await reader.read(1)
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except ssl.SSLCertVerificationError as error:
        return _of_peer(error, name)
    except ssl.SSLError as error:
        return _of_alert(error)
    except (OSError, ValueError, OverflowError, TimeoutError):
        return None
    return None


def _context(certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certificates.ca_file)
    context.load_cert_chain(certificates.certificate_file, certificates.key_file)
    context.set_alpn_protocols(["h2"])
    return context


def _of_peer(error: ssl.SSLCertVerificationError, name: str) -> str:
    if "expired" in error.verify_message:
        return "its certificate has expired"
    if "ostname mismatch" in error.verify_message:
        return f"its certificate is not for {name}"
    return f"its certificate is not of our CA: {error.verify_message}"


def _of_alert(error: ssl.SSLError) -> str:
    reason = error.reason or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return "it does not speak TLS"
    for alert, words in _ALERTS.items():
        if reason.endswith(alert):
            return words
    return f"TLS: {reason}"

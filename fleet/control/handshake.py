"""Why a peer cannot be reached by TLS, in words.

The gRPC library tells what it thinks of a peer's certificate, but of a peer that turned ours down
only that the socket was closed. So after a failed dial one handshake more is made, with the
standard library, whose errors say more.
"""

import asyncio
import contextlib
import ssl

from fleet.certificates import Certificates, Role

PROBE_SECONDS = 1.0


async def fault(address: str, certificates: Certificates, role: Role) -> str | None:
    """What is wrong between us and this peer; None if nothing is, or if it does not answer."""
    name = certificates.name_of(role)
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            context = await asyncio.to_thread(_context, certificates)
            turned_down = await _closed_on(address, context, name)
    except ssl.SSLCertVerificationError as error:
        return _of_peer(error, name)
    except ssl.SSLError as error:
        return _of_alert(error)
    except (OSError, ValueError, OverflowError, TimeoutError):
        return None
    if not turned_down:
        return None
    if certificates.expiry_seconds() <= 0:
        return "our certificate has expired"
    return "it does not accept our certificate: another CA, or a clock that is wrong"


async def _closed_on(address: str, context: ssl.SSLContext, name: str) -> bool:
    """Whether the peer, whose certificate is good, closes without a word once it has seen ours.

    It judges ours after we have judged its own. A gRPC server that accepts it speaks first; one
    that does not need not send an alert.
    """
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host.strip("[]"), int(port), ssl=context, server_hostname=name
    )
    try:
        return not await reader.read(1)
    except ConnectionError:
        return True
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


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
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
        return "it does not speak TLS"
    return f"TLS: {reason}"

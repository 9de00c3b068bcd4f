"""A network of one's own, for what needs other addresses than loopback.

EndpointSlices refuse loopback addresses, so workers and model servers need others that lead to
this machine, and that nobody else sees: in a network namespace whose `lo` answers for whole
networks. The kernel takes it away with the last process in it.
"""

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

WORKERS = "192.0.2"
"""The first three numbers of the workers' addresses (RFC 5737)."""

MODEL_SERVERS = "198.18.0.0/15"
"""The network of the model servers (RFC 2544): each of its addresses is this machine."""

_CLONE_NEWNET = 0x40000000
_CONFIGURE_SECONDS = 10.0


class NoNetwork(Exception):
    """There can be none here; the message says why."""


def pod_ip(number: int) -> str:
    """The address of the n-th pod of a model server."""
    return f"198.18.{number // 250}.{number % 250 + 1}"


def configure() -> None:
    """Give the new network namespace that we are in its addresses."""
    for command in (
        "ip link set lo up",
        f"ip route add local {WORKERS}.0/24 dev lo",
        f"ip route add local {MODEL_SERVERS} dev lo",
    ):
        subprocess.run(command.split(), check=True, timeout=_CONFIGURE_SECONDS)


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """This thread, and all threads and processes that it starts, are in there until it ends.

    Sockets that were open before, and threads that run already, stay in the network that they are
    of. So do threads that outlive the block: use nothing in it that keeps some for the process'
    life, such as gRPC.

    Raises:
        NoNetwork: `ip` is missing, or the kernel does not let us.
    """
    if shutil.which("ip") is None:
        raise NoNetwork("no network of one's own: `ip` (iproute2) is not installed")
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_CLONE_NEWNET) != 0:
            why = os.strerror(ctypes.get_errno())
            raise NoNetwork(f"no network of one's own: unshare: {why}; it takes root")
        try:
            configure()
            yield
        finally:
            if libc.setns(before, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "cannot return to the network we came from")
    finally:
        os.close(before)

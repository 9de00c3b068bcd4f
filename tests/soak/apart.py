"""A network and a process table of the soak's own.

EndpointSlices refuse loopback addresses, so workers and model servers need others that lead to
this machine, and that nobody else sees: in a network namespace whose `lo` answers for whole
networks. The kernel ends every process in it with the first one.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

WORKERS = "192.0.2"
"""The first three numbers of the workers' addresses (RFC 5737)."""

MODEL_SERVERS = "198.18.0.0/15"
"""The network of the model servers (RFC 2544): each of its addresses is this machine."""

_INSIDE = "EPP_FLEET_SOAK_INSIDE"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Become `python -m module arguments` in there; returns in there.

    Raises:
        SystemExit: `unshare` or `ip` is missing, or the kernel does not let us.
    """
    if os.environ.pop(_INSIDE, ""):
        _configure()
        return
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        raise SystemExit("soak: needs `unshare` (util-linux) and `ip` (iproute2)")
    words = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    os.environ[_INSIDE] = "1"
    os.execv(unshare, [unshare, *words, sys.executable, "-m", module, *arguments])


def _configure() -> None:
    for command in (
        "ip link set lo up",
        f"ip route add local {WORKERS}.0/24 dev lo",
        f"ip route add local {MODEL_SERVERS} dev lo",
    ):
        subprocess.run(command.split(), check=True, timeout=10)

"""A network and a process table of the soak's own; the kernel ends every process in it with the
first one."""

import os
import shutil
import sys
from collections.abc import Sequence

from tests.own_network import configure

_INSIDE = "EPP_FLEET_SOAK_INSIDE"


def enter(module: str, arguments: Sequence[str]) -> None:
    """Become `python -m module arguments` in there; returns in there.

    Raises:
        SystemExit: `unshare` or `ip` is missing, or the kernel does not let us.
    """
    if os.environ.pop(_INSIDE, ""):
        configure()
        return
    unshare = shutil.which("unshare")
    if unshare is None or shutil.which("ip") is None:
        raise SystemExit("soak: needs `unshare` (util-linux) and `ip` (iproute2)")
    words = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    os.environ[_INSIDE] = "1"
    os.execv(unshare, [unshare, *words, sys.executable, "-m", module, *arguments])

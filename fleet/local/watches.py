"""How many files Envoy may follow: each one costs an inotify instance, and it aborts without one.

The kernel counts instances by user (fs.inotify.max_user_instances, by default 128).
"""

import contextlib
import os
from pathlib import Path

PROC = Path("/proc")
LIMIT_FILE = PROC / "sys" / "fs" / "inotify" / "max_user_instances"
RESERVE = 10
"""For Envoy's clusters and routes files, and for files that are followed twice for a moment."""

UNKNOWN = 128
"""The kernel's default, where the limit cannot be read."""


def _held_by(process: Path) -> int:
    """Instances of one process; what cannot be looked at (it ended, was closed) counts as none."""
    count = 0
    try:
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                count += "inotify" in str(descriptor.readlink())
    except OSError:
        return count
    return count


def _used() -> int:
    """Instances that this user's processes hold now, as far as we may look."""
    count, own = 0, os.getuid()
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == own:
                count += _held_by(entry)
    return count


def free_watches() -> int:
    """Files that Envoy can follow beside the ones it always does."""
    try:
        limit = int(LIMIT_FILE.read_text())
    except (OSError, ValueError):
        limit = UNKNOWN
    return max(0, limit - _used() - RESERVE)


def too_many_pools(pools: int, watches: int) -> str:
    """What to do about it."""
    return (
        f"gateway: Envoy follows one file for each of the {pools} pools, but only {watches} more "
        "inotify instances are left; raise the limit (sysctl -w "
        "fs.inotify.max_user_instances=65536), or run without a gateway: --gateway none"
    )

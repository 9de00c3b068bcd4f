"""Run folders of fleets that were killed: found and removed by the next fleet that starts."""

import os
import re
import shutil
import stat
from pathlib import Path

from fleet.local import locks

PREFIX = "epp-fleet-"
LOCK_NAME = "lock"
MOST_REMOVED = 100
"""At one start; the rest is left to the next one."""

_NAME = re.compile(re.escape(PREFIX) + r"[a-z0-9_]{8}")


def lock_folder(root: Path) -> locks.Lock:
    """Mark a new run folder as in use by this process.

    Raises:
        OSError: it cannot be written.
    """
    # Under its own name only once it is held: a lock that nobody holds means a dead owner.
    lock = locks.take(root / f".{LOCK_NAME}.new")
    if lock is None:
        raise OSError(f"{root}: somebody else has locked a new folder")
    lock.rename(root / LOCK_NAME)
    return lock


def remove_orphans(base: Path) -> list[Path]:
    """Remove the run folders in `base` whose owner is dead; returns those that are gone.

    Only what is ours for certain: a real folder with a run folder's name, of this user and closed
    to all others, with a lock file in it that no living process holds.
    """
    removed = []
    try:
        found = sorted(path for path in base.iterdir() if _NAME.fullmatch(path.name))
    except OSError:
        return []
    for path in found[:MOST_REMOVED]:
        try:
            if _is_private(path) and _remove_if_dead(path):
                removed.append(path)
        except OSError:
            continue  # no lock in it, gone meanwhile, or not removable: not ours for certain
    return removed


def _is_private(path: Path) -> bool:
    status = path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and mode == 0o700


def _remove_if_dead(path: Path) -> bool:
    lock = locks.take(path / LOCK_NAME, create=False)
    if lock is None:
        return False
    try:
        shutil.rmtree(path)
    finally:
        lock.release()
    return True

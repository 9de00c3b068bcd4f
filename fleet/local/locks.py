"""Lock files: who holds one lives, for the kernel lets go of it when its holder ends in any way."""

import contextlib
import fcntl
import os
from pathlib import Path


class Lock:
    """A lock that this process holds; made by `take`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    def rename(self, path: Path) -> None:
        """Give the file another name; the lock stays held.

        Raises:
            OSError: it cannot be renamed.
        """
        self._path.rename(path)
        self._path = path

    def release(self) -> None:
        """Remove the file, if it is still there, and let go; once."""
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)


def take(path: Path, *, create: bool = True) -> Lock | None:
    """Take the lock at `path`, or None if a living process holds it.

    Raises:
        OSError: the file cannot be opened or locked.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT if create else 0)
    while True:
        # Not inheritable, so children do not keep it.
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.fstat(descriptor)
            there = path.lstat()
            if (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
                return Lock(path, descriptor)
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        # The holder before us removed the file while we waited at its door.
        os.close(descriptor)

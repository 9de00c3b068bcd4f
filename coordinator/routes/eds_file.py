"""One EDS file: its lock, what stands in it, and the fenced replacement. Blocking; runs in threads.

The lock is an flock on a file of its own (below `.locks`), for the route file itself is replaced.
Whoever holds it has its fence to itself: what it compared is what it replaces.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from coordinator.election.contract import Term
from coordinator.routes.contract import Route
from coordinator.routes.envoy_format import MAX_FILE_BYTES, decode, encode, file_name
from fleet.clock import Clock
from fleet.errors import FormatError
from fleet.model import GroupKey

LOCKS = ".locks"
TEMPORARY = ".tmp"


class EdsFile:
    """The file of one route group.

    Hundreds are written in a row while workers wait to be told of the same map. So names are plain
    strings here, and files descriptors: 100 files take 4.5 ms of CPU in memory, and 11 on ext4; by
    paths and file objects 7.4 and 15.
    """

    def __init__(self, directory: Path, group: GroupKey, clock: Clock) -> None:
        self.group = group
        self._name = file_name(group)
        self._directory = os.fspath(directory)
        self._path = f"{self._directory}/{self._name}"
        self._lock_path = f"{self._directory}/{LOCKS}/{self._name}"
        self._clock = clock

    @property
    def path(self) -> Path:
        """Where it is, there or not."""
        return Path(self._path)

    @contextlib.contextmanager
    def locked(self, *, wait: bool) -> Iterator[bool]:
        """Try once for the lock; yields whether it is held.

        Args:
            wait: False = go on without the lock if somebody else holds it.
        """
        descriptor = self._try_lock()
        try:
            yield descriptor is not None or not wait
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _try_lock(self) -> int | None:
        descriptor = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_lock_file(descriptor):
                return descriptor
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        # Removed together with its route between open and flock: a lock that nobody else sees.
        os.close(descriptor)
        return None

    def _is_lock_file(self, descriptor: int) -> bool:
        try:
            there = os.stat(self._lock_path)  # noqa: PTH116 - compared with fstat
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def read(self) -> Route | None:
        """What stands there; None for nothing and for what cannot be read as a route."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return decode(self.group, os.read(descriptor, MAX_FILE_BYTES))
        except FormatError:
            return None
        finally:
            os.close(descriptor)

    def replace(self, route: Route, term: Term) -> bool:
        """Put `route` there, in one step, unless `term` is over; whether it was done."""
        data = encode(route)
        temporary = f"{self._directory}/.{self._name}.{secrets.token_hex(6)}{TEMPORARY}"
        done = False
        try:
            _write(temporary, data)
            done = self._commit(temporary, term)
        finally:
            if not done:
                Path(temporary).unlink(missing_ok=True)
        return done

    def _commit(self, temporary: str, term: Term) -> bool:
        if not term.valid(self._clock.monotonic()):
            return False
        self._rename(temporary)
        return True

    def _rename(self, temporary: str) -> None:
        os.replace(temporary, self._path)  # noqa: PTH105 - see the class

    def remove(self, term: Term) -> bool:
        """Delete the file and its lock unless `term` is over; whether it was done."""
        if not term.valid(self._clock.monotonic()):
            return False
        self.path.unlink(missing_ok=True)
        Path(self._lock_path).unlink(missing_ok=True)
        return True


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)

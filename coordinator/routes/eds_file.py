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
    """The file of one route group."""

    def __init__(self, directory: Path, group: GroupKey, clock: Clock) -> None:
        self.group = group
        self._name = file_name(group)
        self._directory = directory
        self.path = directory / self._name
        self._lock_path = directory / LOCKS / self._name
        self._clock = clock

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
            with self.path.open("rb") as file:
                return decode(self.group, file.read(MAX_FILE_BYTES))
        except (FileNotFoundError, FormatError):
            return None

    def replace(self, route: Route, term: Term) -> bool:
        """Put `route` there, in one step, unless `term` is over; whether it was done."""
        temporary = self._directory / f".{self._name}.{secrets.token_hex(6)}{TEMPORARY}"
        try:
            temporary.write_bytes(encode(route))
            return self._commit(temporary, term)
        finally:
            temporary.unlink(missing_ok=True)

    def _commit(self, temporary: Path, term: Term) -> bool:
        if not term.valid(self._clock.monotonic()):
            return False
        self._rename(temporary)
        return True

    def _rename(self, temporary: Path) -> None:
        temporary.replace(self.path)

    def remove(self, term: Term) -> bool:
        """Delete the file and its lock unless `term` is over; whether it was done."""
        if not term.valid(self._clock.monotonic()):
            return False
        self.path.unlink(missing_ok=True)
        self._lock_path.unlink(missing_ok=True)
        return True

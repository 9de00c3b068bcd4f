"""A manifests folder on disk: what changed since the last look. Blocking; runs in a thread.

A writer may be at work at any time, by renaming a finished file or in place. So a file that changes
while it is read is left for the next look, and what seems to be gone (a file, or objects from a
file that was rewritten in place) must be gone in two looks in a row.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fleet.sources.contract import Problem
from fleet.sources.manifests import (
    Entry,
    FileContent,
    FileHolding,
    Held,
    Remembered,
    Snapshot,
    merge,
    read_text,
    settle,
    unreadable,
)

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILE_BYTES = 32 * 1024 * 1024
MAX_FOLDER_BYTES = 512 * 1024 * 1024
MAX_FILES = 100_000
MAX_DEPTH = 32

_SETTLED_NS = 100_000_000
"""A file younger than this may change again within one tick of the file system's clock, so that
its times do not show it; it is read again. Ticks are 10 ms at most."""


class _Stamp(NamedTuple):
    """What tells two states of a file apart without reading it."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "_Stamp":
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )


@dataclass(slots=True)
class _File:
    """What is known of one file.

    Attributes:
        stamp: of the last reading; None = read it again.
        doubt: stamp at which something seemed to be gone from it.
        gone: it was not there at the last look.
    """

    stamp: _Stamp | None
    inode: int
    digest: bytes
    entries: tuple[Entry, ...]
    holding: tuple[Held, ...]
    remembered: Remembered
    doubt: _Stamp | None = None
    gone: bool = False


class Look(NamedTuple):
    """One look at the folder.

    Attributes:
        complete: everything could be listed and read.
    """

    snapshot: Snapshot
    complete: bool


class ManifestFolder:
    """Remembers files between looks. Not thread-safe: one look at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, _File] = {}
        self._snapshot = Snapshot()
        self._troubles: tuple[Problem, ...] = ()

    def look(self, wall: float) -> Look:
        """See what the folder holds now; never raises for what is wrong in it.

        Args:
            wall: wall-clock seconds now, to compare with the files' times.
        """
        found, troubles = _listing(self._root)
        listed = not troubles
        changed = False
        for path, stamp in sorted(found.items()):
            changed |= self._visit(path, stamp, wall, troubles)
        if listed:  # else nothing is known to be gone
            changed |= self._drop_gone(found)
        if changed or tuple(troubles) != self._troubles:
            self._troubles = tuple(troubles)
            merged = merge(
                {
                    path: FileHolding(file.entries, file.holding)
                    for path, file in self._files.items()
                }
            )
            problems = (*troubles, *merged.problems)
            self._snapshot = Snapshot(merged.objects, merged.known, problems)
        return Look(self._snapshot, not troubles)

    def _visit(self, path: str, stamp: _Stamp, wall: float, troubles: list[Problem]) -> bool:
        """Read one file if it changed; whether what it holds did."""
        old = self._files.get(path)
        if old is not None:
            old.gone = False
            if old.stamp == stamp:
                return False
        try:
            data, stamp = _read(self._root / path)
        except FileNotFoundError:
            return False  # gone between listing and reading: the next look tells
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}; repair its permissions"
            troubles.append(Problem(path, reason))
            return False
        if data is None:
            return False  # written to at this moment
        settled = abs(wall * 1e9 - stamp.modified_ns) > _SETTLED_NS
        return self._adopt(path, data, stamp, settled)

    def _adopt(self, path: str, data: bytes, stamp: _Stamp, settled: bool) -> bool:
        old = self._files.get(path)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if old is not None and old.digest == digest:
            old.stamp, old.inode, old.doubt = (stamp if settled else None), stamp.inode, None
            return False
        content = _content(data, old.remembered if old is not None else {})
        before = old.holding if old is not None else ()
        holding = settle(content.entries, before, self._snapshot.known)
        lost = {held.identity for held in before} - {held.identity for held in holding}
        if old is not None and lost and old.inode == stamp.inode and old.doubt != stamp:
            old.doubt, old.stamp = stamp, None
            return False
        self._files[path] = _File(
            stamp if settled else None,
            stamp.inode,
            digest,
            content.entries,
            holding,
            content.remembered,
        )
        return True

    def _drop_gone(self, found: dict[str, _Stamp]) -> bool:
        missing = [path for path in self._files if path not in found]
        dropped = False
        for path in missing:
            if self._files[path].gone:
                del self._files[path]
                dropped = True
            else:
                self._files[path].gone = True
        return dropped


def _content(data: bytes, remembered: Remembered) -> FileContent:
    if len(data) > MAX_FILE_BYTES:
        return unreadable(f"larger than {MAX_FILE_BYTES >> 20} MiB; split the file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return unreadable(f"byte {error.start} is no UTF-8; save the file as UTF-8")
    return read_text(text, remembered)


def _read(path: Path) -> tuple[bytes | None, _Stamp]:
    """The file's bytes (None if it changed meanwhile) and its stamp."""
    with path.open("rb") as file:
        before = _Stamp.of(os.fstat(file.fileno()))
        data = file.read(MAX_FILE_BYTES + 1)
        after = _Stamp.of(os.fstat(file.fileno()))
    return (data if before == after else None), after


def _listing(root: Path) -> tuple[dict[str, _Stamp], list[Problem]]:
    """All manifest files below `root` by relative path, and what could not be listed."""
    found: dict[str, _Stamp] = {}
    troubles: list[Problem] = []
    total = 0
    pending: list[tuple[str, int]] = [("", 0)]
    while pending:
        folder, depth = pending.pop()
        try:
            for path, status in _entries(root, folder):
                if status is None:
                    if depth < MAX_DEPTH:
                        pending.append((path, depth + 1))
                    continue
                total += status.st_size
                if len(found) >= MAX_FILES or total > MAX_FOLDER_BYTES:
                    bound = f"{MAX_FILES} files or {MAX_FOLDER_BYTES >> 20} MiB of manifests"
                    troubles.append(Problem(str(root), f"more than {bound}; split the folder"))
                    return found, troubles
                found[path] = _Stamp.of(status)
        except OSError as error:
            reason = f"cannot be listed: {error.strerror or error}; repair it"
            troubles.append(Problem(str(root / folder), reason))
    return found, troubles


def _entries(root: Path, folder: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Subfolders (with None) and manifest files (with their status) of one folder, by name."""
    with os.scandir(root / folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.name.startswith("."):
                continue
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                yield path, None
                continue
            status = _regular(entry)
            if status is not None:
                yield path, status


def _regular(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The status of a manifest file, through a link if it is one; None for anything else."""
    if not entry.name.endswith(SUFFIXES):
        return None
    try:
        status = entry.stat()
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None

"""Half-written route files of a process that was killed are removed, and nobody else's."""

import logging
import os
from pathlib import Path

import pytest

from coordinator.routes.eds import _ABANDONED_SECONDS, _drop_abandoned

NOW = 1_000_000.0


def listed(folder: Path, age_seconds: float) -> "os.DirEntry[str]":
    path = folder / ".ns~svc~9002.json.abc.tmp"
    path.write_text("half")
    os.utime(path, (NOW - age_seconds, NOW - age_seconds))
    with os.scandir(folder) as entries:
        return next(iter(entries))


@pytest.mark.parametrize(("age_seconds", "stays"), [(0.0, True), (_ABANDONED_SECONDS + 1, False)])
def test_only_an_old_one_is_removed(tmp_path: Path, age_seconds: float, stays: bool) -> None:
    """A young one is being written."""
    entry = listed(tmp_path, age_seconds)
    _drop_abandoned(entry, NOW)
    assert Path(entry.path).exists() is stays


def test_one_that_was_renamed_since_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It was being written by another process, or by us, when the folder was listed."""
    entry = listed(tmp_path, 0.0)
    Path(entry.path).rename(tmp_path / "ns~svc~9002.json")
    with caplog.at_level(logging.WARNING):
        _drop_abandoned(entry, NOW)
    assert caplog.records == []

"""How many files Envoy may follow."""

import ctypes
import os
from pathlib import Path

import pytest

from fleet.local import watches


def test_instances_in_use_are_taken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's limit, less what this user holds, less a reserve; never below zero."""
    limit = tmp_path / "limit"
    monkeypatch.setattr(watches, "LIMIT_FILE", limit)
    limit.write_text("100000\n")
    before = watches.free_watches()
    descriptor = ctypes.CDLL(None).inotify_init()
    try:
        assert watches.free_watches() <= 100_000 - watches.RESERVE - 1
    finally:
        os.close(descriptor)
    assert before <= 100_000 - watches.RESERVE
    limit.write_text("1")
    assert watches.free_watches() == 0


def test_the_message_names_both_ways_out() -> None:
    """Raise the limit, or run without a gateway."""
    text = watches.too_many_pools(400, 118)
    assert "400 pools" in text
    assert "fs.inotify.max_user_instances" in text
    assert "--gateway none" in text

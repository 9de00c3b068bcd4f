"""A folder is looked at in whole only if it may have changed."""

import os
from pathlib import Path

import pytest

from coordinator.routes.glance import SETTLED_SECONDS, WHOLE_SECONDS, Glance


def modified(folder: Path, at: float) -> None:
    os.utime(folder, (at, at))


def test_a_settled_folder_that_stays_as_it_is_is_unchanged(tmp_path: Path) -> None:
    """Until it is time for a whole look again."""
    modified(tmp_path, 1000.0)
    glance = Glance(tmp_path)
    assert not glance.unchanged(0.0)
    glance.looking(0.0, 1001.0)
    assert glance.unchanged(1.0)
    assert glance.unchanged(WHOLE_SECONDS - 0.1)
    assert not glance.unchanged(WHOLE_SECONDS)


def test_a_rename_shows(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    modified(tmp_path, 1000.0)
    glance = Glance(tmp_path)
    glance.looking(0.0, 1001.0)
    (tmp_path / "a").rename(tmp_path / "b")
    assert not glance.unchanged(0.1)


@pytest.mark.parametrize("wall", [1000.0, 1000.0 + SETTLED_SECONDS / 2, 990.0])
def test_a_folder_that_has_just_changed_is_looked_at_again(tmp_path: Path, wall: float) -> None:
    """Another change may bear the same time. A clock that was set back proves nothing either."""
    modified(tmp_path, 1000.0)
    glance = Glance(tmp_path)
    glance.looking(0.0, wall)
    assert not glance.unchanged(0.1)


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    modified(folder, 1000.0)
    glance = Glance(folder)
    glance.looking(0.0, 1001.0)
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        glance.unchanged(0.1)

"""Run folders that killed fleets left behind, and what is never touched."""

import subprocess
import sys
from pathlib import Path

from fleet.local.locks import take
from fleet.local.orphans import lock_folder, remove_orphans

NAME = "epp-fleet-abcd1234"


def _folder(base: Path, name: str = NAME, *, mode: int = 0o700, lock: bool = True) -> Path:
    path = base / name
    path.mkdir(mode=0o700)
    (path / "token").write_text("t")
    if lock:
        (path / "lock").touch(0o600)
    path.chmod(mode)
    return path


def test_a_folder_without_living_owner_is_removed(tmp_path: Path) -> None:
    """All of it, and it is named."""
    path = _folder(tmp_path)
    assert remove_orphans(tmp_path) == [path]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_stays(tmp_path: Path) -> None:
    """Until its owner lets go, which the kernel does for one that is killed."""
    path = _folder(tmp_path, lock=False)
    lock = lock_folder(path)
    assert remove_orphans(tmp_path) == []
    assert sorted(each.name for each in path.iterdir()) == ["lock", "token"]
    lock.release()
    (path / "lock").touch(0o600)
    assert remove_orphans(tmp_path) == [path]


def test_what_is_not_ours_for_certain_stays(tmp_path: Path) -> None:
    """No lock in it, readable by others, another name, a file, links to somewhere else."""
    kept = [
        _folder(tmp_path, "epp-fleet-nolock00", lock=False),
        _folder(tmp_path, "epp-fleet-readable", mode=0o755),
        _folder(tmp_path, "epp-fleet-my-own-notes"),
    ]
    elsewhere = _folder(tmp_path, "elsewhere")
    (tmp_path / "epp-fleet-linked00").symlink_to(elsewhere)
    linked_lock = _folder(tmp_path, "epp-fleet-linklock", lock=False)
    (linked_lock / "lock").symlink_to(elsewhere / "lock")
    (tmp_path / "epp-fleet-file0000").write_text("x")
    assert remove_orphans(tmp_path) == []
    for path in (*kept, elsewhere, linked_lock):
        assert (path / "token").exists()
    assert remove_orphans(tmp_path / "gone") == []


def test_a_lock_has_one_holder_and_leaves_no_file(tmp_path: Path) -> None:
    """The second asks in vain; after the release the file is gone and the next one gets it."""
    path = tmp_path / "l"
    first = take(path)
    assert first is not None
    assert take(path) is None
    first.release()
    assert not path.exists()
    second = take(path)
    assert second is not None
    second.release()


def test_children_do_not_keep_a_lock(tmp_path: Path) -> None:
    """A process that we started and that outlives us must not look like us."""
    lock = take(tmp_path / "l")
    assert lock is not None
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, close_fds=False
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        held = {str(each.readlink()) for each in Path(f"/proc/{child.pid}/fd").iterdir()}
        child.stdin.close()
    lock.release()
    assert not any(str(tmp_path) in each for each in held)

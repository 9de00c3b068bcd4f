"""Looks at a folder that is being edited: what is believed at once, and what at the second look."""

import os
from pathlib import Path

import pytest

from fleet.model import Pool
from fleet.sources import scan
from fleet.sources.contract import Kind
from fleet.sources.folder import check_folder
from fleet.sources.scan import Look, ManifestFolder
from tests import manifest_texts as texts

LATER = 4e9
"""Wall-clock seconds far from any file's time: files are settled."""


def ports(look: Look) -> dict[str, int]:
    pools = [each for each in look.snapshot.objects[Kind.POOL].values() if isinstance(each, Pool)]
    return {pool.ref.name: pool.target_ports[0] for pool in pools}


def replace(path: Path, text: str) -> None:
    """As an editor that writes a new file and renames it."""
    temporary = path.with_name(".new")
    temporary.write_text(text)
    temporary.replace(path)


@pytest.fixture
def folder(tmp_path: Path) -> ManifestFolder:
    (tmp_path / "f.yaml").write_text(texts.text(texts.pool("a"), texts.pool("b")))
    made = ManifestFolder(tmp_path)
    assert ports(made.look(LATER)) == {"a": 8000, "b": 8000}
    return made


def test_a_renamed_file_is_believed_at_once(folder: ManifestFolder, tmp_path: Path) -> None:
    """A rename is a whole file: what is not in it is gone."""
    replace(tmp_path / "f.yaml", texts.text(texts.pool("b", ports=(1,))))
    assert ports(folder.look(LATER)) == {"b": 1}


def test_what_a_rewritten_file_lost_must_be_lost_twice(
    folder: ManifestFolder, tmp_path: Path
) -> None:
    """A file that was emptied to be written anew has not lost its objects yet."""
    path = tmp_path / "f.yaml"
    path.write_text("")
    assert ports(folder.look(LATER)) == {"a": 8000, "b": 8000}
    path.write_text(texts.text(texts.pool("a", ports=(1,))))
    assert ports(folder.look(LATER)) == {"a": 8000, "b": 8000}
    assert ports(folder.look(LATER)) == {"a": 1}


def test_what_was_added_in_place_is_believed_at_once(
    folder: ManifestFolder, tmp_path: Path
) -> None:
    """Only losses wait."""
    with (tmp_path / "f.yaml").open("a") as file:
        file.write("---\n" + texts.text(texts.pool("c")))
    assert ports(folder.look(LATER)) == {"a": 8000, "b": 8000, "c": 8000}


def test_half_a_document_keeps_what_was_there(folder: ManifestFolder, tmp_path: Path) -> None:
    """A writer that was interrupted: a problem by line, and nothing is lost, ever."""
    path = tmp_path / "f.yaml"
    path.write_text(texts.text(texts.pool("a", ports=(1,)), texts.pool("b"))[:-10])
    for _ in range(3):
        look = folder.look(LATER)
        assert ports(look) == {"a": 1, "b": 8000}
    (problem,) = look.snapshot.problems
    assert problem.where == "f.yaml, document 2"
    assert problem.message.startswith("line ")


def test_a_vanished_file_must_be_missing_twice(folder: ManifestFolder, tmp_path: Path) -> None:
    """Some editors move the old file away before they write the new one."""
    (tmp_path / "f.yaml").rename(tmp_path / "f.yaml~")
    assert ports(folder.look(LATER)) == {"a": 8000, "b": 8000}
    assert ports(folder.look(LATER)) == {}


def test_a_file_that_came_back_was_never_gone(folder: ManifestFolder, tmp_path: Path) -> None:
    """Missing, there, missing: that is not twice in a row."""
    path, away = tmp_path / "f.yaml", tmp_path / "f.yaml~"
    for _ in range(3):
        path.rename(away)
        assert ports(folder.look(LATER)) == {"a": 8000, "b": 8000}
        away.rename(path)
        assert ports(folder.look(LATER)) == {"a": 8000, "b": 8000}


def test_a_look_without_a_change_gives_the_same_snapshot(folder: ManifestFolder) -> None:
    """The very object, so that nothing is compared."""
    assert folder.look(LATER).snapshot is folder.look(LATER).snapshot


def test_a_change_within_one_tick_is_seen(tmp_path: Path) -> None:
    """Same size, same times, same inode: a young file is read again until its times can differ."""
    path = tmp_path / "f.yaml"
    path.write_text(texts.text(texts.pool("a", ports=(1000,))))
    folder = ManifestFolder(tmp_path)
    young = path.stat().st_mtime
    assert ports(folder.look(young)) == {"a": 1000}
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    path.write_text(texts.text(texts.pool("a", ports=(2000,))))
    os.utime(path, ns=times)
    assert ports(folder.look(young)) == {"a": 2000}


def test_which_files_are_read(tmp_path: Path) -> None:
    """Three endings, subfolders, links as a mounted ConfigMap has them; no dot files."""
    data = tmp_path / "..data"
    data.mkdir()
    (data / "linked.yaml").write_text(texts.text(texts.pool("linked")))
    (tmp_path / "linked.yaml").symlink_to(Path("..data") / "linked.yaml")
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.json").write_text(texts.text(texts.pool("json")))
    (tmp_path / "sub" / "loop").symlink_to(tmp_path)
    (tmp_path / "y.yml").write_text(texts.text(texts.pool("yml")))
    (tmp_path / ".hidden.yaml").write_text(texts.text(texts.pool("hidden")))
    (tmp_path / "z.txt").write_text(texts.text(texts.pool("text")))
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yaml")
    look = ManifestFolder(tmp_path).look(LATER)
    assert sorted(ports(look)) == ["json", "linked", "yml"]
    assert (look.complete, look.snapshot.problems) == (True, ())


def test_a_file_that_is_no_text_keeps_its_objects(folder: ManifestFolder, tmp_path: Path) -> None:
    """And says which byte."""
    (tmp_path / "f.yaml").write_bytes(b"a: \xff")
    look = folder.look(LATER)
    assert ports(look) == {"a": 8000, "b": 8000}
    assert look.snapshot.problems[0].message == "byte 3 is no UTF-8; save the file as UTF-8"


def test_bounds(folder: ManifestFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large a file keeps its objects; too many files make an incomplete look, and no losses."""
    monkeypatch.setattr(scan, "MAX_FILE_BYTES", 100)
    (tmp_path / "f.yaml").write_text("x" * 101)
    look = folder.look(LATER)
    assert ports(look) == {"a": 8000, "b": 8000}
    assert look.snapshot.problems[0].message.startswith("larger than")
    monkeypatch.setattr(scan, "MAX_FILES", 0)
    for _ in range(3):
        look = folder.look(LATER)
    assert (look.complete, ports(look)) == (False, {"a": 8000, "b": 8000})


def test_without_the_folder_everything_stays(folder: ManifestFolder, tmp_path: Path) -> None:
    """The look says that it is incomplete; afterwards all is as before."""
    hidden = tmp_path.with_name(tmp_path.name + "-hidden")
    tmp_path.rename(hidden)
    for _ in range(3):
        look = folder.look(LATER)
        assert (look.complete, ports(look)) == (False, {"a": 8000, "b": 8000})
    assert "cannot be listed: No such file or directory" in look.snapshot.problems[0].message
    hidden.rename(tmp_path)
    look = folder.look(LATER)
    assert (look.complete, look.snapshot.problems) == (True, ())


def test_a_good_folder_has_no_problems(tmp_path: Path) -> None:
    """With what else a folder may hold."""
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}
    known = (texts.pool("a"), texts.pod(), texts.objective(), texts.rewrite())
    (tmp_path / "f.yaml").write_text(texts.text(*known, other))
    assert check_folder(tmp_path) == []


def test_a_check_finds_everything_that_is_wrong(tmp_path: Path) -> None:
    """Every problem at once, each with file and document."""
    (tmp_path / "a.yaml").write_text("kind: [\n")
    (tmp_path / "b.yaml").write_text(texts.text(texts.pod("p"), texts.pod("p")))
    (tmp_path / "c.yaml").write_text(texts.text(texts.pool("x", targetPorts=[])))
    assert [each.where for each in check_folder(tmp_path)] == [
        "a.yaml, document 1",
        "b.yaml, document 2",
        "c.yaml, document 1",
        str(tmp_path),
    ]
    assert check_folder(tmp_path)[-1].message.startswith("no usable InferencePool")


def test_a_check_of_no_folder(tmp_path: Path) -> None:
    """A file or nothing at all."""
    (problem,) = check_folder(tmp_path / "nowhere")
    assert problem.message.startswith("no such folder")

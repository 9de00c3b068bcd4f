"""The state file that other commands and outside tools read."""

import json
import stat
from pathlib import Path

import pytest

from fleet.errors import FormatError
from fleet.local.state import (
    CoordinatorState,
    FleetState,
    Taken,
    WorkerState,
    claimed,
    default_path,
    read_state,
    remove_state,
    write_state,
)


def _state(folder: Path) -> FleetState:
    return FleetState(
        fleet="default",
        redis="redis://127.0.0.1:1/0",
        gateway=None,
        token_file=str(folder / "token"),
        folder=str(folder),
        coordinators=(CoordinatorState("coordinator-0", "127.0.0.1:2", 10),),
        workers=(
            WorkerState("worker-0", "127.0.0.1:3", "127.0.0.1:4", "127.0.0.1:5", "127.0.0.1:6", 11),
        ),
        manifests="/m",
    )


def test_the_documents_names_stay(tmp_path: Path) -> None:
    """Outside tools rely on exactly these members."""
    path = tmp_path / "deep" / "state.json"
    write_state(path, _state(tmp_path))
    document = json.loads(path.read_text())
    assert document == {
        "format": 1,
        "fleet": "default",
        "redis": "redis://127.0.0.1:1/0",
        "gateway": None,
        "token_file": str(tmp_path / "token"),
        "folder": str(tmp_path),
        "coordinators": [{"id": "coordinator-0", "http": "127.0.0.1:2", "pid": 10}],
        "workers": [
            {
                "id": "worker-0",
                "ext_proc": "127.0.0.1:3",
                "health": "127.0.0.1:4",
                "internal": "127.0.0.1:5",
                "http": "127.0.0.1:6",
                "pid": 11,
            }
        ],
        "manifests": "/m",
    }
    assert read_state(path) == _state(tmp_path)


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    """0600, also over a file that was readable for all."""
    path = tmp_path / "state.json"
    path.write_text("old")
    path.chmod(0o644)
    write_state(path, _state(tmp_path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_unknown_members_are_ignored_and_damage_is_named(tmp_path: Path) -> None:
    """Later versions add members; a broken file is an error with its path, not a traceback."""
    path = tmp_path / "state.json"
    assert read_state(path) is None
    write_state(path, _state(tmp_path))
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": 1}))
    assert read_state(path) == _state(tmp_path)
    for text in ("{", "{}", json.dumps({**json.loads(path.read_text()), "format": 3})):
        path.write_text(text)
        with pytest.raises(FormatError, match=r"state\.json"):
            read_state(path)


def test_a_fleet_removes_only_its_own(tmp_path: Path) -> None:
    """Another fleet may have taken the default place meanwhile."""
    path, mine, other = tmp_path / "state.json", tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    write_state(path, _state(other))
    remove_state(path, mine)
    assert path.exists()
    remove_state(path, other)
    assert not path.exists()


def test_a_claimed_file_is_for_one_fleet(tmp_path: Path) -> None:
    """The next one is told; the claim leaves no file behind."""
    path = tmp_path / "deep" / "state.json"
    with claimed(path):
        with pytest.raises(Taken, match=r"state\.json"), claimed(path):
            pass
        assert not path.exists()
    with claimed(path):
        pass
    assert list(path.parent.iterdir()) == []


def test_default_place(tmp_path: Path) -> None:
    """The runtime folder if there is one, else the cache."""
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": "/home/x"}
    assert default_path(runtime) == tmp_path / "epp-fleet" / "state.json"
    gone = {"XDG_RUNTIME_DIR": str(tmp_path / "gone"), "HOME": "/home/x"}
    assert default_path(gone) == Path("/home/x/.cache/epp-fleet/state.json")

"""The folder of picker configurations: what changes, what stays good, and what pools take."""

from pathlib import Path

import pytest

from fleet.clock import SystemClock
from fleet.errors import SettingsError
from fleet.model.identity import PoolRef
from fleet.model.pools import Pool
from fleet.picking.choice import PROFILE, Configs, choose
from fleet.picking.config import DEFAULT
from fleet.picking.extensions import Extensions
from fleet.picking.folder import ConfigFolder, ConfigSource
from fleet.settings.picking import PickingSettings

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"
GOOD = HEAD + "plugins: [{type: queue-scorer}]\n"


def folder(path: Path) -> ConfigFolder:
    return ConfigFolder(path, Extensions(), experimental=False)


def pool(profile: str | None = None) -> Pool:
    annotations = {} if profile is None else {PROFILE: profile}
    return Pool(PoolRef("ns", "a"), "u", {"a": "b"}, (8000,), None, annotations=annotations)


def test_a_file_is_a_configuration_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(GOOD)
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "..data").write_text("x")
    configs = folder(tmp_path).look()
    assert set(configs.good) == {"chat"}
    assert configs.good["chat"].name == "chat"


def test_nothing_new_is_the_same_object(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(GOOD)
    watched = folder(tmp_path)
    assert watched.look() is watched.look()


def test_a_broken_file_leaves_the_last_good_one(tmp_path: Path) -> None:
    """... and is named, with what is wrong; mended, the problem is gone."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    watched = folder(tmp_path)
    good = watched.look().good["chat"]
    file.write_text(GOOD + "plugin: 1\n")
    broken = watched.look()
    assert broken.good["chat"] is good
    assert broken.problems[0].file == "chat.yaml"
    assert broken.problems[0].lines == ("plugin: unknown field; did you mean plugins?",)
    chosen = choose(pool("chat"), broken)
    assert chosen.config is good
    assert chosen.problem.startswith("chat.yaml: plugin: unknown field")
    file.write_text(GOOD + "schedulingProfiles: []\n")
    assert watched.look().problems == ()


def test_gone_is_who_is_gone_twice(tmp_path: Path) -> None:
    """A writer that replaces a file by removing it first changes nothing."""
    file = tmp_path / "chat.yaml"
    file.write_text(GOOD)
    watched = folder(tmp_path)
    watched.look()
    file.unlink()
    assert "chat" in watched.look().good
    assert "chat" not in watched.look().good


def test_a_mounted_config_map_is_followed(tmp_path: Path) -> None:
    """Files are links through `..data`, which is what changes."""
    for number, text in enumerate((GOOD, GOOD + "schedulingProfiles: [{name: b}]\n")):
        (tmp_path / f"..{number}").mkdir()
        (tmp_path / f"..{number}" / "chat.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "chat.yaml").symlink_to("..data/chat.yaml")
    watched = folder(tmp_path)
    assert watched.look().good["chat"].profiles[0].name == "default"
    (tmp_path / "..new").symlink_to("..1")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert watched.look().good["chat"].profiles[0].name == "b"


def test_pools_without_an_annotation_take_default(tmp_path: Path) -> None:
    """... if somebody wrote it; else the built-in one, and that is no problem."""
    assert choose(pool(), Configs()).config is DEFAULT
    assert choose(pool(), Configs()).problem == ""
    (tmp_path / "default.yaml").write_text(GOOD)
    configs = folder(tmp_path).look()
    assert choose(pool(), configs).config is configs.good["default"]


def test_a_name_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    chosen = choose(pool("chta"), folder(tmp_path).look())
    assert chosen.config is DEFAULT
    assert f"{PROFILE}: no configuration is called 'chta'" in chosen.problem


def test_a_folder_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"picking\.configs_folder: no such folder"):
        ConfigSource(PickingSettings(configs_folder=str(tmp_path / "no")), SystemClock())

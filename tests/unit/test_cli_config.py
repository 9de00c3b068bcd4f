"""`epp-fleet config check` of settings files."""

import json
from pathlib import Path

import pytest

from fleet.cli.main import main


def test_config_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 and `good`, or 2 and one line per bad field."""
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("fleet: mine\n")
    bad.write_text("redis: {url: nowhere}\nworker: {weight: 1000}\n")
    assert main(["config", "check", str(good)]) == 0
    assert "good" in capsys.readouterr().out
    assert main(["config", "check", str(bad)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "redis.url" in lines[0]
    assert "worker.weight" in lines[1]


def test_config_check_applies_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the processes do, and it says so; what the command line itself reads is no setting."""
    good = tmp_path / "good.yaml"
    good.write_text("fleet: mine\n")
    monkeypatch.setenv("EPP_FLEET_COORDINATOR", "127.0.0.1:1")
    assert main(["config", "check", str(good)]) == 0
    assert capsys.readouterr().out == f"{good}: good\n"
    monkeypatch.setenv("EPP_FLEET_WORKER__WEIGHT", "2")
    assert main(["config", "check", str(good)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{good}: good together with 1 setting of this environment")
    assert "EPP_FLEET_WORKER__WEIGHT" in text
    monkeypatch.setenv("EPP_FLEET_WORKER__WEIGHT", "1000")
    assert main(["config", "check", str(good)]) == 2
    assert "environment EPP_FLEET_WORKER__WEIGHT" in capsys.readouterr().err
    assert main(["config", "check", str(good), "--file-only"]) == 0
    capsys.readouterr()
    assert main(["config", "check", str(good), "-o", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["kind"], document["good"]) == ("settings", False)
    assert document["environment"] == ["EPP_FLEET_WORKER__WEIGHT"]
    assert "worker.weight" in document["problems"][0]

"""How tests come to run on compiled code, or on the sources where nothing can be compiled."""

import os
import sys
from pathlib import Path

import pytest

from tests import compiled

FOUND = "0123456789abcdef"


class Become:
    """Takes the place of `os.execve`."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.environ: dict[str, str] = {}

    def __call__(self, program: str, command: list[str], environ: dict[str, str]) -> None:
        assert program == command[0] == sys.executable
        if not self.command:  # the real one does not return
            self.command, self.environ = command[1:], environ


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Become:
    """Nothing is compiled yet, and nothing is started."""
    made = Become()
    monkeypatch.setattr(os, "execve", made)
    monkeypatch.setattr(compiled, "CACHE", tmp_path)
    monkeypatch.setattr(compiled, "fingerprint", lambda: FOUND)
    monkeypatch.setenv("PYTHONPATH", "as-it-was")
    return made


def test_without_a_compiler_the_sources_are_run(
    become: Become, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And it is said what is missing."""
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    compiled.main(["--run", "pytest", "-n", "2", "tests/unit"])
    assert become.command == ["-m", "pytest", "-n", "2", "tests/unit"]
    assert become.environ["PYTHONPATH"] == "as-it-was"
    assert "a C compiler (no-such-compiler) is missing" in capsys.readouterr().err


def test_what_is_compiled_already_needs_no_compiler(
    become: Become, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The packages' folder goes before the working tree, which has the tests."""
    (tmp_path / FOUND).mkdir()
    monkeypatch.setenv("CC", "no-such-compiler")
    compiled.main(["--run", "pytest"])
    assert become.command == ["-m", "pytest"]
    assert become.environ["PYTHONPATH"] == f"{tmp_path / FOUND}{os.pathsep}{compiled.ROOT}"
    assert become.environ["PYTHONSAFEPATH"] == "1"


def test_the_folder_alone(
    become: Become, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is printed, for PYTHONPATH."""
    (tmp_path / FOUND).mkdir()
    compiled.main([])
    assert capsys.readouterr().out == f"{tmp_path / FOUND}\n"
    assert become.command == []

"""Where the program that renders `deploy/` comes from."""

from pathlib import Path

import pytest

from tests import kustomize


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No program on the PATH, and an empty cache; returns the only folder of the PATH."""
    path = tmp_path / "bin"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def test_the_reason_is_told_where_there_is_none(nothing: Path) -> None:
    """It is what a skipped test says; without Go nothing is built."""
    with pytest.raises(kustomize.NoKustomize, match=r"neither kustomize nor kubectl.*make tools"):
        kustomize.find()
    with pytest.raises(kustomize.NoKustomize, match="Go is missing"):
        kustomize.build()


def test_the_machines_own_come_first(nothing: Path) -> None:
    """Our own build, then kubectl, then kustomize, each before the last."""
    ours = program(kustomize.cached())
    assert kustomize.VERSION in ours.parts
    assert kustomize.find() == (str(ours), "build")
    assert kustomize.build() == ours
    kubectl = program(nothing / "kubectl")
    assert kustomize.find() == (str(kubectl), "kustomize")
    theirs = program(nothing / "kustomize")
    assert kustomize.find() == (str(theirs), "build")

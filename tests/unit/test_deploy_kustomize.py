"""Where the program that renders `deploy/` comes from."""

from pathlib import Path

import pytest

from tests import go_tools, kustomize


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
    with pytest.raises(kustomize.NoKustomize, match=r"make tools.*neither kustomize nor kubectl"):
        kustomize.find()
    with pytest.raises(go_tools.NoTool, match="no kustomize: Go is missing"):
        go_tools.build(kustomize.KUSTOMIZE)


def test_the_machines_own_come_first(nothing: Path) -> None:
    """Our own build, then kubectl, then kustomize, each before the last."""
    ours = program(kustomize.KUSTOMIZE.cached())
    assert kustomize.KUSTOMIZE.version in ours.parts
    assert kustomize.find() == (str(ours), "build")
    assert go_tools.build(kustomize.KUSTOMIZE) == ours
    kubectl = program(nothing / "kubectl")
    assert kustomize.find() == (str(kubectl), "kustomize")
    theirs = program(nothing / "kustomize")
    assert kustomize.find() == (str(theirs), "build")


def test_a_build_that_fails_or_takes_too_long(
    nothing: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No network: the reason is told, nothing is left in the cache, and nobody waits for ever."""
    go = program(nothing / "go")
    go.write_text("#!/bin/sh\necho no route to the module proxy >&2; exit 1\n")
    with pytest.raises(go_tools.NoTool, match="no kustomize: no route to the module proxy"):
        go_tools.build(kustomize.KUSTOMIZE)
    go.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    monkeypatch.setattr(go_tools, "_BUILD_SECONDS", 0.1)
    with pytest.raises(go_tools.NoTool, match=r"no kustomize: not built within 0\.1 s"):
        go_tools.build(kustomize.KUSTOMIZE)
    assert not kustomize.KUSTOMIZE.cached().exists()

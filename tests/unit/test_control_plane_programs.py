"""Where the control plane for tests comes from, and what people are told where there is none."""

import fcntl
import threading
from pathlib import Path

import pytest

from tests.control_plane import build as building
from tests.control_plane.build import CannotBuild, build, cached_binary, kubernetes_version
from tests.control_plane.programs import Missing, find_programs


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a PATH with openssl and nothing else."""
    tools = tmp_path / "bin"
    tools.mkdir()
    program(tools / "openssl")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_cache_is_by_content(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other sources are another binary."""
    before = cached_binary()
    assert before.is_relative_to(cache / "cache" / "epp-fleet" / "control-plane")
    sources = cache / "sources"
    sources.mkdir()
    for name in ("go.mod", "go.sum", "main.go"):
        (sources / name).write_bytes((building.SOURCES / name).read_bytes())
    monkeypatch.setattr(building, "SOURCES", sources)
    assert cached_binary() == before
    with (sources / "main.go").open("a") as file:
        file.write("\n")
    assert cached_binary() != before


def test_no_go(cache: Path) -> None:
    """Who builds and who tests are told what to install; nothing is left behind."""
    with pytest.raises(CannotBuild, match=r"Go is not installed.*go\.dev.*KUBEBUILDER_ASSETS"):
        build(print)
    with pytest.raises(Missing, match="Go is not installed and KUBEBUILDER_ASSETS is not set"):
        find_programs({})
    assert not (cache / "cache").exists()


def test_go_but_not_built(cache: Path) -> None:
    """Tests never build: that takes minutes."""
    program(cache / "bin" / "go")
    with pytest.raises(Missing, match="make tools"):
        find_programs({})


def test_a_cached_binary_needs_no_go() -> None:
    """All three programs are in it."""
    binary = program(cached_binary())
    assert build(print) == binary
    found = find_programs({})
    assert found.etcd == (str(binary), "etcd")
    assert found.apiserver == (str(binary), "kube-apiserver")
    assert found.controllers == (str(binary), "kube-controller-manager")


def test_kubebuilder_assets_come_first(cache: Path) -> None:
    """With or without a controller manager; a folder without the rest is named."""
    program(cached_binary())
    assets = cache / "assets"
    environ = {"KUBEBUILDER_ASSETS": str(assets)}
    program(assets / "etcd")
    with pytest.raises(Missing, match="assets has no kube-apiserver"):
        find_programs(environ)
    program(assets / "kube-apiserver")
    assert find_programs(environ).controllers is None
    program(assets / "kube-controller-manager")
    assert find_programs(environ).controllers == (str(assets / "kube-controller-manager"),)


def test_no_openssl(cache: Path) -> None:
    """Certificates are made by it."""
    program(cached_binary())
    (cache / "bin" / "openssl").unlink()
    with pytest.raises(Missing, match="openssl"):
        find_programs({})


def test_build(cache: Path) -> None:
    """The binary appears at once and whole, with the release of go.mod stamped into it."""
    told: list[str] = []
    script = 'while [ "$1" != -o ]; do echo "$1" >>"$0.flags"; shift; done; echo made >"$2"'
    go = program(cache / "bin" / "go", script)
    binary = build(told.append)
    assert binary.read_text() == "made\n"
    assert f"gitVersion=v{kubernetes_version()}" in Path(f"{go}.flags").read_text()
    assert told[0].startswith(f"building a Kubernetes {kubernetes_version()}")
    assert {each.name for each in binary.parent.iterdir()} == {"kubetest", "lock", "build.log"}


def test_a_build_that_fails(cache: Path) -> None:
    """The end of the compiler's words is in the message, and no binary is left."""
    program(cache / "bin" / "go", "echo no such module; exit 1")
    with pytest.raises(CannotBuild, match="no such module"):
        build(print)
    assert not cached_binary().exists()


def test_a_build_that_comes_to_a_halt(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module proxy that never answers holds nobody for ever: Go is ended, and who waits is told
    where to look."""
    monkeypatch.setattr(building, "PROGRESS_SECONDS", 0.01)
    monkeypatch.setattr(building, "STALLED_SECONDS", 0.05)
    program(cache / "bin" / "go", "exec /bin/sleep 600")
    with pytest.raises(CannotBuild, match=r"said nothing.*is the module proxy reachable"):
        build(print)
    assert not cached_binary().exists()


def test_two_builders(cache: Path) -> None:
    """The second waits, says so, and uses what the first made."""
    program(cache / "bin" / "go", "echo built twice >&2; exit 1")
    binary = cached_binary()
    binary.parent.mkdir(parents=True)
    told: list[str] = []
    waiting = threading.Event()

    def say(line: str) -> None:
        told.append(line)
        waiting.set()

    with (binary.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=build, args=(say,))
        second.start()
        assert waiting.wait(10)
        program(binary)
    second.join(10)
    assert not second.is_alive()
    assert told == ["another build is under way: waiting for it"]

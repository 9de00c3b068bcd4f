"""What the Dockerfile and the image's entry name exists, and is what they take it for."""

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.compiled import SWITCH
from tests.kustomize import DEPLOY, ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
ENTRYPOINT = DEPLOY / "entrypoint.sh"
PROGRAMS = {"worker": "epp-fleet-worker", "coordinator": "epp-fleet-coordinator"}


def instructions(name: str) -> list[str]:
    """The arguments of each instruction of this name, continuation lines joined."""
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE)
    return [
        line.removeprefix(name).strip() for line in text.splitlines() if line.startswith(f"{name} ")
    ]


def scripts() -> dict[str, str]:
    found: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "scripts"
    ]
    return found


def test_what_is_copied_is_there_and_in_the_context() -> None:
    """Every source of a COPY exists and is let in by .dockerignore."""
    ignore = (ROOT / ".dockerignore").read_text().split()
    assert ignore[0] == "*"
    copied = [
        source
        for line in instructions("COPY")
        if not line.startswith("--from")
        for source in shlex.split(line)[:-1]
    ]
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignore, source
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert set(packages["targets"]["wheel"]["packages"]) <= set(copied)


def test_two_stages_and_no_build_tools_in_the_last() -> None:
    """Only the environment is taken over; nothing is compiled or downloaded in the last stage."""
    assert len(instructions("FROM")) == 2
    last = DOCKERFILE[DOCKERFILE.rindex("FROM ") :]
    assert re.findall(r"COPY .*", last) == ["COPY --from=build /opt/epp-fleet /opt/epp-fleet"]
    assert re.findall(r"RUN .*", last) == ["RUN python -m pip uninstall --yes pip"]
    assert not re.search(r"apt-get|apk |gcc|pip install|wheel", last)


def test_the_image_has_the_compiled_wheel() -> None:
    """The build's switch is the one that the hook reads, and both stages have the same Python."""
    (built,) = [line for line in instructions("RUN") if "pip wheel" in line]
    assert f"{SWITCH}=1 pip wheel --no-build-isolation" in built
    assert [line.split()[0] for line in instructions("FROM")] == [
        "python:${PYTHON}",
        "python:${PYTHON}-slim",
    ]


def test_the_image_runs_as_a_number_that_is_not_root() -> None:
    """A name could not be checked by the kubelet."""
    assert instructions("USER") == ["10001:10001"]
    manifest = (DEPLOY / "base" / "worker.yaml").read_text()
    assert "runAsUser: 10001" in manifest


def test_the_python_is_one_that_the_project_supports() -> None:
    """The image's Python is named once, and pyproject.toml lists it."""
    (version,) = [line.removeprefix("PYTHON=") for line in instructions("ARG")]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {version}" in classifiers


def test_ports_are_those_of_the_settings() -> None:
    """Documented by EXPOSE."""
    (ports,) = instructions("EXPOSE")
    assert ports.split() == ["8080", "8081", "9002", "9003", "9004", "9090"]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with programs that print how they were called."""
    for name in (*PROGRAMS.values(), "epp-fleet"):
        path = tmp_path / name
        path.write_text('#!/bin/sh\necho "$(basename "$0")" $$ "$@"\n')
        path.chmod(0o755)
    return tmp_path


def run(programs: Path, *arguments: str) -> tuple[int, list[str]]:
    """The pid of the entry, and what the program printed."""
    environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
    with subprocess.Popen(
        ["sh", str(ENTRYPOINT), *arguments], env=environment, stdout=subprocess.PIPE
    ) as process:
        out, _ = process.communicate(timeout=10)
    assert process.returncode == 0
    return process.pid, out.decode().split()


@pytest.mark.parametrize(("word", "program"), PROGRAMS.items())
def test_the_entry_becomes_the_program(programs: Path, word: str, program: str) -> None:
    """In the same process, so that SIGTERM reaches it; the program is installed by the wheel."""
    pid, said = run(programs, word, "--config", "/etc/x y")
    assert said == [program, str(pid), "--config", "/etc/x", "y"]
    assert program in scripts()


def test_anything_else_is_the_command_line(programs: Path) -> None:
    """`docker run IMAGE status`; without arguments its help."""
    pid, said = run(programs, "status", "-o", "json")
    assert said == ["epp-fleet", str(pid), "status", "-o", "json"]
    assert "epp-fleet" in scripts()
    assert instructions("CMD") == ['["--help"]']


def test_the_entry_is_where_the_image_looks() -> None:
    """Executable, and copied to the path of ENTRYPOINT."""
    assert os.access(ENTRYPOINT, os.X_OK)
    assert instructions("ENTRYPOINT") == ['["/opt/epp-fleet/bin/entrypoint"]']
    assert "COPY deploy/entrypoint.sh /opt/epp-fleet/bin/entrypoint" in DOCKERFILE

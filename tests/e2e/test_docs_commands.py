"""Every command in README.md and docs/ is run as it is written, as far as a machine without a
cluster can; placeholders are filled in. tests/integration/kube/test_docs_commands.py has those for
a cluster.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.main import make_parser
from tests.docs_commands import ROOT, Command, commands
from tests.e2e.local_process import LocalProcess, local_process

pytestmark = pytest.mark.timeout(240)

FILLED = {
    "ACCOUNT": "default",
    "COMMAND": "status",
    "FILE": "deploy/settings.yaml",
    "N": "2",
    "NAMESPACE/POOL": "acme/llama-8b",
    "POOL": "acme/llama-8b",
    "W": "worker-1",
    "WORKER": "worker-1",
    "settings.yaml": "deploy/settings.yaml",
}
"""What stands for what."""

ELSEWHERE = ("local", "demo", "ca")
"""Commands that tests/e2e has suites of their own for; here their options are looked up."""

CONFIGS = ("chat.yaml", "llama-8b.yaml")
"""Picker configurations that a reader has; this is what is in them."""

CONFIG = """\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
"""

WRITTEN = commands()


def filled(command: Command) -> tuple[str, ...]:
    """Its words with placeholders filled in, without the address of a coordinator: it differs
    here."""
    words = [FILLED.get(word, word.replace("<row>", "moves")) for word in command.words]
    if "--coordinator" in words:
        at = words.index("--coordinator")
        del words[at : at + 2]
    return tuple(words)


def of(program: str) -> list[Any]:
    """The commands of one program, each once, as parameters of a test."""
    different = {filled(each): each for each in reversed(WRITTEN) if each.program == program}
    return [pytest.param(each, id=f"{each.file}:{each.line}") for each in different.values()]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalProcess]:
    home = tmp_path_factory.mktemp("docs")
    settings = home / "settings.yaml"
    settings.write_text("worker: {quiet_seconds: 2}\n")  # `drain --wait` would take half a minute
    with local_process(home, "--config", str(settings)) as made:
        made.wait_ready()
        yield made
        assert made.stop() == 0, made.output


def unfinished(words: Sequence[str]) -> bool:
    """Whether a command in running text names nothing that it is about (`epp-fleet explain`)."""
    try:
        make_parser().parse_args(words)
    except SystemExit as ended:
        return ended.code != 0
    return False


def known(words: Sequence[str]) -> bool:
    """Whether the command line has this command, and these options."""
    command = list(itertools.takewhile(lambda word: word[0] != "-", words))
    done = subprocess.run(
        [sys.executable, "-m", "fleet.cli", *command, "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    options = [word for word in words if word.startswith("-")]
    return done.returncode == 0 and all(option in done.stdout for option in options)


@pytest.mark.parametrize("command", of("epp-fleet"))
def test_epp_fleet(command: Command, fleet: LocalProcess, tmp_path: Path) -> None:
    """Against a fleet with the sample pools: each ends well and says something."""
    words = filled(command)[1:]
    if words[0] in ELSEWHERE or unfinished(words):
        assert known(words), f"{command.file}:{command.line}: no such command: {command.text}"
        return
    if written := [word for word in words if word in CONFIGS]:
        (tmp_path / written[0]).write_text(CONFIG)
        words = tuple(str(tmp_path / word) if word in written else word for word in words)
    if "--watch" in words:
        words = tuple(word for word in words if word != "--watch")
    if words[0] == "undrain":
        assert fleet.run("drain", *words[1:]).returncode == 0
    done = fleet.run(*words)
    assert done.returncode == 0, f"{command.text}: {done.stdout}{done.stderr}"
    assert done.stdout, command.text
    if words[0] == "drain":
        assert fleet.run("undrain", "worker-1").returncode == 0


@pytest.mark.parametrize("command", of("make"))
def test_make(command: Command) -> None:
    """The target is there and takes the variables; nothing is made."""
    done = subprocess.run(
        ["make", "-n", *filled(command)[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command.text}: {done.stderr}"


@pytest.mark.parametrize("command", of("python"))
def test_python(command: Command) -> None:
    """The module is there and takes the options; tests are collected, not run."""
    words = filled(command)[1:]
    assert words[0] == "-m", command.text
    about = ["--collect-only", "-q", "-n0"] if words[1] == "pytest" else ["--help"]
    done = subprocess.run(
        [sys.executable, *words, *about],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, f"{command.text}: {done.stdout[-500:]}{done.stderr[-500:]}"


@pytest.mark.parametrize("command", of("curl"))
def test_curl(command: Command, fleet: LocalProcess) -> None:
    """Through the gateway; the pool of the README's own manifest is tested with it elsewhere."""
    gateway = str(fleet.wait_ready()["gateway"]).rpartition(":")[2]
    words = [
        word.replace("<gateway-port>", gateway).replace("/team-a/my-model/", "/acme/llama-8b/")
        for word in filled(command)
    ]
    done = subprocess.run(
        [*words, "--silent", "--fail", "--max-time", "20"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command.text}: {done.stderr}"
    assert '"object"' in done.stdout


def test_no_program_is_forgotten() -> None:
    """Those that no test can run: a clone of this repository, and an image without its engine."""
    run = {"epp-fleet", "make", "python", "curl", "kubectl", "helm"}
    assert {each.program for each in WRITTEN} - run <= {"docker", "git"}

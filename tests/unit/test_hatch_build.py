"""Which modules are compiled, and that mypyc can take them: told in a second, not by a build."""

import ast
import importlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

hatch_build = importlib.import_module("hatch_build")
ROOT = Path(str(hatch_build.__file__)).parent
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"][
    "build"
]["targets"]["wheel"]["hooks"]["custom"]
COMPILED: list[str] = hatch_build.modules(ROOT, CONFIG)


def classes(path: Path) -> Iterator[ast.ClassDef]:
    """All classes of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef):
            yield node


def bases(node: ast.ClassDef) -> set[str]:
    """The names of a class's bases, without what they are parametrised with."""
    return {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}


def test_every_module_that_a_request_passes_is_compiled() -> None:
    """The rooms of the hot path but for what is named, and nothing else."""
    rooms = {path.rsplit("/", 1)[0] for path in COMPILED}
    assert {"epp_worker/http2", "epp_worker/extproc", "epp_worker/scheduling"} <= rooms
    assert "epp_worker/http2/stream.py" in COMPILED
    assert "epp_worker/extproc/said.py" not in COMPILED
    assert not any(path.startswith(("coordinator/", "fleet/")) for path in COMPILED)


def test_an_entry_that_names_nothing_is_refused() -> None:
    """A module that was moved must not fall out of the image's compiled part unseen."""
    with pytest.raises(ValueError, match=r"gone\.py"):
        hatch_build.modules(ROOT, {"compiled": ["epp_worker/gone.py"], "interpreted": []})
    with pytest.raises(ValueError, match=r"gone\.py"):
        hatch_build.modules(
            ROOT, {"compiled": ["epp_worker/wheel.py"], "interpreted": ["epp_worker/gone.py"]}
        )


def test_no_compiled_class_is_one_that_mypyc_cannot_make() -> None:
    """A Struct would lose its options, a protocol could not be asked for at run time, and a second
    base class is an error."""
    refused = []
    for path in COMPILED:
        for node in classes(ROOT / path):
            names = bases(node)
            decorators = {ast.unparse(each) for each in node.decorator_list}
            several = len(names - {"Generic"}) > 1 and "Protocol" not in names
            if "Struct" in names or "runtime_checkable" in decorators or several:
                refused.append(f"{path}: {node.name}")
    assert not refused


def test_nothing_interpreted_inherits_from_a_compiled_class() -> None:
    """Python classes cannot: the worker would not start."""
    homes: dict[str, set[str]] = {}
    paths = [path.relative_to(ROOT).as_posix() for path in (ROOT / "epp_worker").rglob("*.py")]
    for path in paths:
        for node in classes(ROOT / path):
            homes.setdefault(node.name, set()).add(path)
    wrong = [
        f"{path}: {node.name} inherits from {base}"
        for path in paths
        if path not in COMPILED
        for node in classes(ROOT / path)
        for base in bases(node)
        if homes.get(base, set()) & set(COMPILED)
    ]
    assert not wrong

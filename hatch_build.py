"""Compiles the hot path with mypyc when a wheel is built with EPP_FLEET_COMPILE=1.

    pip install '.[build]' && EPP_FLEET_COMPILE=1 pip wheel --no-build-isolation --no-deps .

Which modules those are stands in pyproject.toml. They are the same sources: a wheel without them is
complete and needs no compiler, and takes twice the CPU per request. Nothing is written into the
source tree.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "EPP_FLEET_COMPILE"
OPTIMISATION = "3"


class CompileHook(BuildHookInterface[Any]):
    """The wheel's build hook."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the compiled modules to what goes into the wheel."""
        if os.environ.get(SWITCH) != "1" or version == "editable":
            return
        self._scratch = tempfile.TemporaryDirectory(prefix="epp-fleet-compile-")
        built = Path(self._scratch.name) / "lib"
        root = Path(self.root)
        compile_modules(modules(root, self.config), root, built, Path(self._scratch.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in built.rglob("*.so"):
            build_data["force_include"][str(path)] = path.relative_to(built).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Take away what the build has left."""
        if hasattr(self, "_scratch"):
            self._scratch.cleanup()


def modules(root: Path, config: dict[str, Any]) -> list[str]:
    """Paths relative to `root` of the modules that the hook's table in pyproject.toml names.

    Raises:
        ValueError: an entry names nothing.
    """
    found = {path for entry in config["compiled"] for path in _matches(root, entry)}
    left_out = {path for entry in config["interpreted"] for path in _matches(root, entry)}
    return sorted(path for path in found - left_out if not path.endswith("__init__.py"))


def _matches(root: Path, entry: str) -> list[str]:
    paths = [path.relative_to(root).as_posix() for path in root.glob(entry)]
    if not paths:
        raise ValueError(f"pyproject.toml: {entry!r} matches no module to compile")
    return paths


def compile_modules(paths: list[str], root: Path, built: Path, scratch: Path) -> None:
    """Make extension modules of Python modules; takes a minute.

    Args:
        paths: relative to `root`.
        built: where the extension modules go, each in its package's folder.

    Raises:
        SystemExit: mypy or the C compiler refuses; what they said stands on stderr.
    """
    from mypyc.build import mypycify
    from setuptools import Distribution

    before = Path.cwd()
    os.chdir(root)
    try:
        extensions = mypycify(
            ["--cache-dir", str(scratch / "mypy"), *paths],
            opt_level=OPTIMISATION,
            debug_level="0",
            target_dir=str(scratch / "c"),
        )
        command = Distribution({"name": "epp-fleet", "ext_modules": extensions}).get_command_obj(
            "build_ext"
        )
        command.build_lib = str(built)
        command.build_temp = str(scratch / "o")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    sys.stdout.flush()

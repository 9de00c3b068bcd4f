"""The packages with their hot path compiled, as a folder to put on PYTHONPATH.

    python -m tests.compiled                  prints where it is
    python -m tests.compiled --run pytest ... runs `python -m pytest ...` on it

It is made from a wheel as the image's is (`hatch_build.py`), which takes a minute or two, once for
each state of the sources: ~/.cache/epp-fleet/compiled keeps the newest few. `environment()` makes a
Python process, and all that it starts, run that instead of the working tree. Where there is nothing
to compile with, `--run` says so and takes the sources as they are; that they cannot be compiled is
an error.
"""

import argparse
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from fleet.installed import is_compiled

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("fleet", "coordinator", "epp_worker")
CACHE = Path.home() / ".cache" / "epp-fleet" / "compiled"
KEPT = 4
_FINGERPRINT_CHARACTERS = 16
SWITCH = "EPP_FLEET_COMPILE"
_TIMEOUT_SECONDS = 1200
_BUILDS_WITH = ("mypyc", "hatchling", "setuptools", "pip")


def fingerprint() -> str:
    """Of everything that the compiled code depends on."""
    sources = [path for name in PACKAGES for path in (ROOT / name).rglob("*") if _counts(path)]
    digest = hashlib.sha256(f"{sys.version}|{platform.machine()}|{version('mypy')}".encode())
    for path in (*sorted(sources), ROOT / "pyproject.toml", ROOT / "hatch_build.py"):
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:_FINGERPRINT_CHARACTERS]


def _counts(path: Path) -> bool:
    return path.is_file() and path.suffix not in (".pyc", ".so")


def missing() -> str | None:
    """What is not there to compile with; None = everything is."""
    for name in _BUILDS_WITH:
        if importlib.util.find_spec(name) is None:
            return f"Python's package {name}"
    words = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(words[0]) is None:
        return f"a C compiler ({words[0]})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's own header files"
    return None


def folder() -> Path:
    """Where the packages are; made if they are not there.

    Raises:
        subprocess.CalledProcessError: they cannot be made; what was said stands on stderr.
        SystemExit: somebody has changed the sources meanwhile.
    """
    made = CACHE / fingerprint()
    if made.exists():
        os.utime(made)
        return made
    CACHE.mkdir(parents=True, exist_ok=True)
    sys.stderr.write("compiling the hot path (a minute or two, once per change)\n")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        wheels, unpacked = Path(scratch, "wheels"), Path(scratch, "packages")
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
        command += ["--no-build-isolation", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
        subprocess.run(
            command, check=True, env={**os.environ, SWITCH: "1"}, timeout=_TIMEOUT_SECONDS
        )
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        if made.name != fingerprint():
            raise SystemExit("the sources were changed while they were compiled: start again")
        if not made.exists():  # somebody else may have been as quick
            unpacked.rename(made)
    _forget_old()
    return made


def _forget_old() -> None:
    made = [path for path in CACHE.iterdir() if len(path.name) == _FINGERPRINT_CHARACTERS]
    for path in sorted(made, key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)


def environment() -> dict[str, str]:
    """The environment in which `python -m ...` finds the compiled packages, and `tests` here."""
    path = os.pathsep.join((str(folder()), str(ROOT)))
    return {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def enter(module: str, arguments: Sequence[str]) -> None:
    """Go on as `python -m module` on compiled code; returns if this process has it already."""
    if not is_compiled():
        _become(module, arguments, environment())


def run(module: str, arguments: Sequence[str]) -> None:
    """Go on as `python -m module`, on compiled code if it is there or can be made."""
    lacks = None if (CACHE / fingerprint()).exists() else missing()
    if lacks is None:
        sys.stderr.write(f"{module} runs on the compiled hot path\n")
        _become(module, arguments, environment())
    sys.stderr.write(f"{module} runs on the plain sources: to compile them, {lacks} is missing\n")
    _become(module, arguments, dict(os.environ))


def _become(module: str, arguments: Sequence[str], environ: dict[str, str]) -> None:
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environ)


def main(argv: Sequence[str]) -> None:
    """The command; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled")
    parser.add_argument(
        "--run", metavar="MODULE", help="and its arguments", nargs=argparse.REMAINDER
    )
    words = parser.parse_args(argv).run
    if words is None:
        sys.stdout.write(f"{folder()}\n")
    elif words:
        run(words[0], words[1:])
    else:
        parser.error("--run needs a module")


if __name__ == "__main__":
    main(sys.argv[1:])

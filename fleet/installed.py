"""What is installed here: whether workers run compiled code."""

import importlib.util
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_PACKAGE = "epp_worker"
_COMPILED = "http2/stream"
"""One module of the package that `hatch_build.py` compiles with all others, or not at all."""


@cache
def is_compiled() -> bool:
    """Whether the hot path of this installation's workers is compiled.

    Found out without importing anything of theirs, for coordinators and the command line know no
    worker.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    return any(holds_compiled(Path(folder)) for folder in folders)


def holds_compiled(package: Path) -> bool:
    """Whether this folder of the package has compiled modules: Python takes them before sources."""
    return any((package / f"{_COMPILED}{suffix}").is_file() for suffix in EXTENSION_SUFFIXES)

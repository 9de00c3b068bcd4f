"""Whether the hot path is compiled, told without importing it."""

import sysconfig
from pathlib import Path

from epp_worker.http2 import stream
from fleet.installed import holds_compiled, is_compiled


def test_it_is_what_python_imports() -> None:
    """The very module that this process has."""
    assert is_compiled() is not str(stream.__file__).endswith(".py")


def test_a_compiled_module_beside_its_source_counts(tmp_path: Path) -> None:
    """A wheel has both; one for another Python is none."""
    package = tmp_path / "http2"
    package.mkdir()
    assert not holds_compiled(tmp_path)
    (package / "stream.py").touch()
    (package / "stream.cpython-27-pdp11.so").touch()
    assert not holds_compiled(tmp_path)
    (package / f"stream{sysconfig.get_config_var('EXT_SUFFIX')}").touch()
    assert holds_compiled(tmp_path)

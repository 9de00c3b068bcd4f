"""Finds the programs of a control plane: KUBEBUILDER_ASSETS if set, else the cached binary."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.control_plane.build import cached_binary


class Missing(Exception):
    """No control plane can run here; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Commands, to which flags are added; `controllers` is None where there is no such program."""

    etcd: tuple[str, ...]
    apiserver: tuple[str, ...]
    controllers: tuple[str, ...] | None


def find_programs(environ: Mapping[str, str] | None = None) -> Programs:
    """What this machine has.

    Raises:
        Missing: nothing.
    """
    environ = os.environ if environ is None else environ
    if shutil.which("openssl") is None:
        raise Missing("openssl is not installed, and a control plane needs certificates")
    assets = environ.get("KUBEBUILDER_ASSETS")
    if assets:
        return _in_assets(Path(assets))
    binary = str(cached_binary())
    if Path(binary).exists():
        return Programs(
            (binary, "etcd"), (binary, "kube-apiserver"), (binary, "kube-controller-manager")
        )
    if shutil.which("go") is None:
        raise Missing("no control plane: Go is not installed and KUBEBUILDER_ASSETS is not set")
    raise Missing("no control plane: `make tools` builds it (8 to 14 minutes, once)")


def _in_assets(folder: Path) -> Programs:
    for name in ("etcd", "kube-apiserver"):
        if not (folder / name).exists():
            raise Missing(f"no control plane: KUBEBUILDER_ASSETS={folder} has no {name}")
    controllers = folder / "kube-controller-manager"
    return Programs(
        (str(folder / "etcd"),),
        (str(folder / "kube-apiserver"),),
        (str(controllers),) if controllers.exists() else None,
    )

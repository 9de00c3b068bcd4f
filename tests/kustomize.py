"""What `deploy/` comes to: its overlays as kustomize renders them.

A kustomize or a kubectl (which has one inside) of the machine is used, else one that
`python -m tests.kustomize` built from the Go module proxy into the user's cache, by version (a
minute, once). Where there is none, `rendered` raises `NoKustomize` with the reason.
"""

import functools
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from fleet.kube.contract import Raw
from tests import go_tools

KUSTOMIZE: Final = go_tools.Tool("kustomize", "sigs.k8s.io/kustomize/kustomize/v5", "v5.8.1")

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
OVERLAYS = ("cluster-wide", "single-namespace", "external-redis", "redis-sentinel")

_RENDER_SECONDS = 60.0


class NoKustomize(Exception):
    """Nothing here renders manifests; the message says why."""


def find() -> tuple[str, ...]:
    """The command that renders a folder; the folder comes last.

    Raises:
        NoKustomize: there is none.
    """
    for program, words in (("kustomize", ("build",)), ("kubectl", ("kustomize",))):
        found = shutil.which(program)
        if found:
            return (found, *words)
    try:
        return (str(go_tools.find(KUSTOMIZE)), "build")
    except go_tools.NoTool as missing:
        raise NoKustomize(f"{missing}; neither kustomize nor kubectl is on the PATH") from None


@functools.cache
def rendered(folder: Path) -> tuple[Raw, ...]:
    """All objects of a kustomization.

    Raises:
        NoKustomize: nothing here renders it.
        AssertionError: it cannot be rendered.
    """
    done = subprocess.run(
        [*find(), str(folder)], capture_output=True, timeout=_RENDER_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return tuple(each for each in yaml.safe_load_all(done.stdout) if each)


def overlay(name: str) -> tuple[Raw, ...]:
    """All objects of one of `OVERLAYS`; raises as `rendered` does."""
    return rendered(DEPLOY / "overlays" / name)


def of_kind(objects: Sequence[Raw], kind: str, name: str = "") -> list[Raw]:
    """Those of a kind; of this name, if one is given."""
    return [
        each for each in objects if each["kind"] == kind and name in ("", each["metadata"]["name"])
    ]


def only(objects: Sequence[Raw], kind: str, name: str) -> Raw:
    """The one object of this kind and name."""
    (found,) = of_kind(objects, kind, name)
    return found


def main() -> int:
    """Build it; 0 also where it cannot be, since tests are skipped then."""
    try:
        where = " ".join(find())
    except NoKustomize:
        try:
            where = str(go_tools.build(KUSTOMIZE))
        except go_tools.NoTool as missing:
            where = str(missing)
    sys.stdout.write(f"{where}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

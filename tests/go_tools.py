"""Programs written in Go that tests run: h2spec, grpcurl, grpc-health-probe and helm.

`python -m tests.go_tools` builds them from the Go module proxy into the user's cache, by version
(some minutes, once). Where one is missing, `find` raises `NoTool` with the reason.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_BUILD_SECONDS = 900.0
"""Of one program; a module proxy that takes connections and never answers ends there."""


class NoTool(Exception):
    """It is not here; the message says why."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program and the module that it is built from."""

    name: str
    module: str
    version: str

    def cached(self) -> Path:
        """Where our own build is, or would be."""
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "epp-fleet" / self.name / self.version / self.name


H2SPEC: Final = Tool("h2spec", "github.com/summerwind/h2spec/cmd/h2spec", "v2.2.1+incompatible")
GRPCURL: Final = Tool("grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl", "v1.9.4")
HEALTH_PROBE: Final = Tool(
    "grpc-health-probe", "github.com/grpc-ecosystem/grpc-health-probe", "v0.4.63"
)
HELM: Final = Tool("helm", "helm.sh/helm/v4/cmd/helm", "v4.3.2")
ALL: Final = (H2SPEC, GRPCURL, HEALTH_PROBE, HELM)


def find(tool: Tool) -> Path:
    """The program.

    Raises:
        NoTool: it was not built.
    """
    if tool.cached().exists():
        return tool.cached()
    raise NoTool(f"no {tool.name}: it is not in the cache (`make tools` builds it, with Go)")


def build(tool: Tool) -> Path:
    """Build it unless it is there.

    Raises:
        NoTool: Go is missing, or the build failed or took too long.
    """
    target = tool.cached()
    if target.exists():
        return target
    go = shutil.which("go")
    if go is None:
        raise NoTool(f"no {tool.name}: Go is missing, which builds it")
    target.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "GOBIN": str(target.parent), "GOFLAGS": "-p=2", "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            [go, "install", f"{tool.module}@{tool.version}"],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoTool(f"no {tool.name}: not built within {_BUILD_SECONDS:g} s") from None
    if done.returncode != 0:
        raise NoTool(f"no {tool.name}: {done.stderr.decode(errors='replace')[-500:]}")
    return target


def main() -> int:
    """Build all; 0 also where they cannot be, since tests are skipped then."""
    for tool in ALL:
        try:
            where = str(build(tool))
        except NoTool as missing:
            where = str(missing)
        sys.stdout.write(f"{where}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What `deploy/helm/epp-fleet` comes to: the chart as helm renders it.

helm is built by `python -m tests.go_tools`; where it is not there, `NoTool` says why.
"""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from fleet.kube.contract import Raw
from tests import go_tools
from tests.kustomize import DEPLOY

CHART: Final = DEPLOY / "helm" / "epp-fleet"
NAMESPACE: Final = "epp-fleet"
RELEASE: Final = "epp-fleet"

_RUN_SECONDS = 60.0

Values = Mapping[str, Any]


class Refused(Exception):
    """helm would not; the message is what it said."""


def helm(*arguments: str, values: Values | None = None) -> str:
    """Run it; what it wrote on standard output.

    Args:
        values: given in a file, as a user would; None = a command that takes none.

    Raises:
        NoTool: there is no helm.
        Refused: it ended with another code than 0.
    """
    program = str(go_tools.find(go_tools.HELM))
    with tempfile.TemporaryDirectory() as home:
        command = [program, *arguments]
        if values is not None:
            file = Path(home) / "values.yaml"
            file.write_text(yaml.safe_dump(dict(values)))
            command += ["--values", str(file)]
        done = subprocess.run(
            command,
            env={**os.environ, "HELM_CACHE_HOME": home, "HELM_CONFIG_HOME": home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    if done.returncode != 0:
        raise Refused(done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace"))
    return done.stdout.decode()


def chart(values: Values | None = None, *, namespace: str = NAMESPACE) -> tuple[Raw, ...]:
    """All objects of a release with these values; raises as `helm` does."""
    return _rendered(json.dumps(values or {}, sort_keys=True), namespace)


@functools.cache
def _rendered(values: str, namespace: str) -> tuple[Raw, ...]:
    text = helm(
        "template", RELEASE, str(CHART), "--namespace", namespace, values=json.loads(values)
    )
    return tuple(each for each in yaml.safe_load_all(text) if each)


def notes(values: Values | None = None) -> str:
    """What an installation tells; raises as `helm` does."""
    text = helm(
        "install",
        RELEASE,
        str(CHART),
        "--namespace",
        NAMESPACE,
        "--dry-run=client",
        values=values,
    )
    return text.partition("NOTES:\n")[2]

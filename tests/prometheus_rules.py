"""The alerts of deploy/prometheus/rules.yaml, and the same for the Prometheus Operator:

python -m tests.prometheus_rules > deploy/components/prometheus-rules/prometheus-rule.yaml
"""

import shutil
import subprocess
import sys
from typing import Any

import yaml

from tests.kustomize import DEPLOY, ROOT

RULES = DEPLOY / "prometheus" / "rules.yaml"
COMPONENT = DEPLOY / "components" / "prometheus-rules"
RUNBOOK = ROOT / "docs" / "runbook.md"
UNIT_TESTS = sorted((ROOT / "tests" / "prometheus").glob("*.yaml"))

_HEAD = """\
# The alerts of ../../prometheus/rules.yaml; written by `python -m tests.prometheus_rules`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: epp-fleet
spec:
"""


def rules() -> list[dict[str, Any]]:
    """All alerts, in order."""
    document = yaml.safe_load(RULES.read_text())
    return [rule for group in document["groups"] for rule in group["rules"]]


def as_object() -> str:
    """The PrometheusRule, as text."""
    text = RULES.read_text()
    groups = text[text.index("groups:") :]
    return _HEAD + "".join(f"  {line}" for line in groups.splitlines(keepends=True))


def promtool(*words: str) -> subprocess.CompletedProcess[str] | None:
    """What it says; None where there is none."""
    found = shutil.which("promtool")
    if found is None:
        return None
    return subprocess.run(
        [found, *words], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )


if __name__ == "__main__":
    sys.stdout.write(as_object())

"""README and docs: each setting and each metric that they name is there."""

import re
from pathlib import Path

import pytest
import yaml

from coordinator.metrics.catalogue import SECTIONS as COORDINATOR
from epp_worker.metrics.catalogue import SECTIONS as WORKER
from fleet.settings.fields import all_fields

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

FIELDS = set(all_fields())
SETTING = re.compile(r"`([a-z]+)\.([a-z_]+)(?:: [^`]+)?`")
METRIC = re.compile(r"\b(?:epp_fleet|llm_d_epp|inference_objective)_[a-z_]*[a-z]\b(?![_*])")
FILES = {"json", "yaml", "md", "py", "service"}
"""What follows the dot of a file's name."""


def _of_the_chart(section: str, field: str) -> bool:
    """A value of the Helm chart, which the pages write like a setting."""
    values = yaml.safe_load((ROOT / "deploy" / "helm" / "epp-fleet" / "values.yaml").read_text())
    below = values.get(section)
    return isinstance(below, dict) and field in below


def _metrics() -> set[str]:
    """All that processes may show, with the series of histograms."""
    names = {each.name for section in (*COORDINATOR, *WORKER) for each in section.metrics}
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "sum", "count")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_exist(page: Path) -> None:
    """Each `section.field` of a section that there is."""
    sections = {path.partition(".")[0] for path in FIELDS}
    named = {
        f"{section}.{field}"
        for section, field in SETTING.findall(page.read_text())
        if section in sections and field not in FILES
    }
    unknown = named - FIELDS
    assert [each for each in sorted(unknown) if not _of_the_chart(*each.split("."))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_metrics_exist(page: Path) -> None:
    """Each that is written out."""
    assert set(METRIC.findall(page.read_text())) - _metrics() == set()


def test_there_is_something_to_check() -> None:
    """The patterns find what the pages are full of."""
    text = "\n".join(page.read_text() for page in PAGES)
    settings = {f"{section}.{field}" for section, field in SETTING.findall(text)}
    assert len(settings & FIELDS) > 40
    assert len(set(METRIC.findall(text)) & _metrics()) > 60

"""The reference of all metrics, made from their declarations.

`python -m fleet.metrics.reference coordinator.metrics.catalogue epp_worker.metrics.catalogue >
docs/metrics.md` writes the page that ships; a test holds that it is up to date. The kernel knows no
process: each names its own declarations in a module with `SECTIONS`.
"""

import importlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.metrics.declared import Declared

_HEAD = """\
# Metrics

Written by `python -m fleet.metrics.reference coordinator.metrics.catalogue
epp_worker.metrics.catalogue`; do not edit.

Coordinators and workers answer `GET /metrics` in Prometheus' text format. Where reads are guarded
(`security.reads: kubernetes`) the scraper needs a token: deploy/samples/metrics-reader.yaml. The
labels `fleet` and `pod` in rules and dashboards come from the scrape
(deploy/components/pod-monitor). It must keep the label `namespace` that a series has
(`honorLabels`): beside a label `pool` it is the pool's namespace.

## How many series

Series of single pools are many, so they are bounded: a process has them for the first
`metrics.max_pools` pools by namespace and name (2,000). `epp_fleet_series_dropped` says how many
`epp_fleet_*` series of further ones are left out. Aggregates count all pools. A series goes with
its pool, its endpoint or its worker. What only a leader knows is shown by the leader alone.

| process | series |
|---|---|
| coordinator | about 220; on the leader 3 for each worker, and 3 for each pool |
| worker | about 120; 7 for each pool it holds, 1 for each endpoint; 7 more for each pool it owns, \
3 for each endpoint; once there are requests 9 for each pool and 120 for each row |

Nothing of this is on the way of a request: the loop counts plain numbers, a scrape copies them and
writes the page in a thread.

## How to read them

- What every replica knows (`epp_fleet_groups`, `_unowned_groups`, `_members`, `_map_version`) is
  best read from the leader: `... and on (fleet, pod) epp_fleet_leader == 1`.
- What terms count (`epp_fleet_moves_total`, `_verdicts_total`, `_unowned_seconds_total`, the
  leader's histograms) stays where it was counted when the lead changes: take `sum` of `increase`.
- Alerts: deploy/prometheus/rules.yaml, and what to do in [runbook.md](runbook.md).
"""


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics of one kind of process.

    Attributes:
        text: where they are found, in Markdown.
    """

    title: str
    text: str
    metrics: tuple[Declared, ...]


def sections_of(modules: Iterable[str]) -> list[Section]:
    """All sections of these modules, in order."""
    found: list[Section] = []
    for name in modules:
        found += importlib.import_module(name).SECTIONS
    return found


def reference(sections: Iterable[Section]) -> str:
    """The page."""
    lines = _HEAD.splitlines()
    for section in sections:
        lines += ["", f"## {section.title}", "", section.text, ""]
        lines += ["| name | type | labels | series | meaning |", "|---|---|---|---|---|"]
        lines += [_row(each) for each in section.metrics]
    return "\n".join(lines) + "\n"


def _row(declared: Declared) -> str:
    labels = ", ".join(f"`{label}`" for label in declared.labels)
    meaning = declared.text if not declared.when else f"{declared.text} Shown {declared.when}."
    cells = (f"`{declared.name}`", declared.kind.value, labels, declared.series, meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(reference(sections_of(sys.argv[1:])))

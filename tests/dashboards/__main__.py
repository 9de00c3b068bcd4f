"""`python -m tests.dashboards`: write `deploy/grafana/*.json`."""

import json
import sys
from pathlib import Path

from tests.dashboards import coordination, fleet, pool, worker
from tests.dashboards.choices import link
from tests.dashboards.parts import Dashboard

FOLDER = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARDS: tuple[Dashboard, ...] = (
    fleet.DASHBOARD,
    pool.DASHBOARD,
    worker.DASHBOARD,
    coordination.DASHBOARD,
)


def texts() -> dict[str, str]:
    """What each file should say."""
    links = {each.uid: link(each.title, f"/d/{each.uid}") for each in DASHBOARDS}
    runbook = link("Runbook", "${docs}/runbook.md")
    found: dict[str, str] = {}
    for each in DASHBOARDS:
        others = [made for uid, made in links.items() if uid != each.uid]
        found[each.file] = json.dumps(each.json([*others, runbook]), indent=1) + "\n"
    return found


def main() -> int:
    """Write them all; a file of none of them is removed."""
    made = texts()
    for path in FOLDER.glob("*.json"):
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)
        sys.stdout.write(f"{FOLDER / name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

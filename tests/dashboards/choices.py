"""Variables and links that the dashboards have in common."""

from tests.dashboards.parts import Choice, Json, Text, Variable
from tests.dashboards.promql import F

FLEET_UID = "epp-fleet-fleet"
POOL_UID = "epp-fleet-pool"
WORKER_UID = "epp-fleet-worker"
COORDINATION_UID = "epp-fleet-coordination"

FLEET = Variable("fleet", "Fleet", "label_values(epp_fleet_epoch, fleet)", False, True, ".*")
"""All also where the scrape adds no such label."""

POOL_OF_FLEET = "epp_fleet_pool_owner_info"
WORKER = Variable("worker", "Worker", f"label_values(epp_fleet_hold{{{F}}}, pod)", True, True)
"""All stands for each by name: other programs have `process_...` metrics too."""

COORDINATOR = Variable(
    "coordinator", "Coordinator", f"label_values(epp_fleet_leader{{{F}}}, pod)", True, True
)
NAMESPACES = Variable(
    "namespace", "Namespace", f"label_values({POOL_OF_FLEET}{{{F}}}, namespace)", True, True, ".*"
)
POOLS = Variable(
    "pool",
    "Pool",
    f'label_values({POOL_OF_FLEET}{{{F},namespace=~"$namespace"}}, pool)',
    True,
    True,
    ".*",
)
NAMESPACE = Variable("namespace", "Namespace", NAMESPACES.query)
POOL = Variable("pool", "Pool", POOLS.query)
MOVED = Choice("owners_more_than", "Show", {"all pools": "0", "pools that moved": "1"})
RUNBOOK = Text("docs", "Docs at", "https://example.com/epp-fleet/docs")
"""Where the reader's company keeps these documents."""

_PASSED = "${__url_time_range}&${datasource:queryparam}&${fleet:queryparam}"


def to_pool(namespace: str, pool: str) -> Json:
    """A link on a value to that pool's dashboard.

    Args:
        namespace, pool: Grafana's expressions for them.
    """
    return {
        "title": "Pool",
        "url": f"/d/{POOL_UID}?{_PASSED}&var-namespace={namespace}&var-pool={pool}",
    }


def to_worker(worker: str) -> Json:
    """A link on a value to that worker's dashboard."""
    return {"title": "Worker", "url": f"/d/{WORKER_UID}?{_PASSED}&var-worker={worker}"}


def link(title: str, url: str) -> Json:
    """A link at the top, which takes time and variables along."""
    return {
        "type": "link",
        "title": title,
        "url": url,
        "icon": "external link" if url.startswith("/d/") else "doc",
        "tooltip": title,
        "tags": [],
        "asDropdown": False,
        "includeVars": url.startswith("/d/"),
        "keepTime": url.startswith("/d/"),
        "targetBlank": not url.startswith("/d/"),
    }

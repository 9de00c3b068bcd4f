"""The Coordination dashboard: leadership, the store, membership, routes, and what is read."""

from tests.dashboards.choices import COORDINATION_UID, COORDINATOR, FLEET, RUNBOOK
from tests.dashboards.panels import GOOD_BELOW_ONE, lines, name, stat, states, table
from tests.dashboards.parts import Dashboard, Event, Row, after, on_cluster
from tests.dashboards.promql import COORDINATORS, F, leaders, quantiles, rate

_GLANCE = Row(
    "At a glance",
    (
        name(
            "Leader",
            "Exactly one; none for a few seconds while another takes over.",
            f"epp_fleet_leader{{{F}}} == 1",
            "pod",
            none="nobody",
            width=6,
        ),
        stat(
            "Epoch",
            "Generation of leadership; it only grows.",
            "none",
            f"max(epp_fleet_epoch{{{COORDINATORS}}})",
        ),
        after(
            stat(
                "Changes of leader",
                "In the range on top. Roll-outs make some; otherwise see Lease renewals.",
                "short",
                f"max(increase(epp_fleet_leader_transitions_total{{{COORDINATORS}}}[$__range]))",
                steps=(("green", 0), ("yellow", 1), ("red", 10)),
                decimals=0,
            ),
            Event.LEADER_KILL,
        ),
        stat(
            "Oldest map",
            "A follower's copy is at most 0.1 s behind while it hears the leader.",
            "s",
            f"max(epp_fleet_map_age_seconds{{{COORDINATORS}}})",
            steps=(("green", 0), ("yellow", 2), ("red", 10)),
        ),
        stat(
            "Store behind",
            "How long the store has lacked the public map. Serving does not need it there.",
            "s",
            f"max(epp_fleet_store_behind_seconds{{{COORDINATORS}}})",
            steps=(("green", 0), ("yellow", 5), ("red", 60)),
        ),
        after(
            stat(
                "Foreign route writes",
                "In the range on top: routes that the leader had not written, each repaired within "
                "a second. After a change of leader a stale one may be there; otherwise somebody "
                "else writes them.",
                "short",
                f"sum(increase(epp_fleet_stale_route_writes_total{{{COORDINATORS}}}[$__range]))",
                steps=GOOD_BELOW_ONE,
                decimals=0,
            ),
            Event.FOREIGN_ROUTE,
        ),
        stat(
            "Series left out",
            "Of pools, because there are more than `metrics.max_pools`. The dashboards lack them.",
            "short",
            f"max(epp_fleet_series_dropped{{{COORDINATORS}}})",
            steps=(("green", 0), ("yellow", 1)),
        ),
    ),
)

_LEADERSHIP = Row(
    "Leadership",
    (
        states(
            "Who led",
            "A line for each coordinator. Two that lead at once would be an old one that has not "
            "yet noticed; its writes are refused.",
            f"epp_fleet_leader{{{COORDINATORS}}}",
            "{{pod}}",
            {0: ("follows", "semi-dark-blue"), 1: ("leads", "green")},
        ),
        lines(
            "Lease renewals",
            "How long they took, answered or not. Near the request timeout (0.3 s in Redis, 1 s of "
            "a Kubernetes Lease) a lease is soon lost.",
            "s",
            quantiles("epp_fleet_lease_renew_seconds", COORDINATORS, "pod"),
        ),
        lines(
            "Epoch by process",
            "All meet at the leader's.",
            "none",
            {"{{pod}}": f"epp_fleet_epoch{{{F}}}"},
        ),
        lines(
            "Map version by coordinator",
            "All meet at the leader's; one that stays below does not hear of changes. Each epoch "
            "goes on from where the last one was.",
            "none",
            {"{{pod}}": f"epp_fleet_map_version{{{COORDINATORS}}}"},
        ),
    ),
)

_STORE = Row(
    "Redis or Valkey",
    (
        after(
            lines(
                "Failed calls by kind",
                "Of coordinators and workers; the outcome of such a call is unknown, never no. "
                "docs/redis.md has the kinds.",
                "cps",
                {"{{kind}}": rate("epp_fleet_store_errors_total", F, "kind")},
            ),
            Event.STORE_RESTART,
        ),
        after(
            lines(
                "Failed calls by process",
                "One line alone: that pod's network or its rights; all of them: the server.",
                "cps",
                {"{{pod}}": rate("epp_fleet_store_errors_total", F, "pod")},
            ),
            Event.STORE_RESTART,
        ),
        lines(
            "Store behind the public map",
            "With a Kubernetes Lease the map is published while the store is away, and stored "
            "later.",
            "s",
            {"{{pod}}": f"epp_fleet_store_behind_seconds{{{COORDINATORS}}}"},
        ),
    ),
)

_MEMBERS = Row(
    "Membership and placement",
    (
        after(
            lines(
                "Workers declared dead per minute",
                "By the signal that proved it: `refused` its ports, `silent` for the TTL, a new "
                "`incarnation`, `pod_gone`.",
                "short",
                {"{{signal}}": rate("epp_fleet_verdicts_total", F, "signal", unit=60)},
            ),
            Event.WORKER_KILL,
        ),
        after(
            lines(
                "Signals against workers",
                "Suspects, and those that died within the last minute.",
                "short",
                {"{{signal}}": f"max by (signal) ({leaders('epp_fleet_member_signals')})"},
            ),
            Event.WORKER_KILL,
        ),
        lines(
            "Workers by state",
            "As each coordinator knows them; lines of one state should meet.",
            "short",
            {"{{pod}} {{state}}": f"epp_fleet_members{{{COORDINATORS}}} > 0"},
        ),
        after(
            lines(
                "Placement",
                "Time to place all groups once, on the leader: when something changed.",
                "s",
                quantiles("epp_fleet_placement_seconds", COORDINATORS),
            ),
            Event.DRAIN,
        ),
        after(
            lines(
                "Map to workers",
                "From the begin of a publication until a worker reports that it applied it.",
                "s",
                quantiles("epp_fleet_map_propagation_seconds", COORDINATORS),
            ),
            Event.WORKER_KILL,
        ),
        lines(
            "Moves pending",
            "Planned moves that wait for their turn or are under way.",
            "short",
            {"{{pod}}": leaders("epp_fleet_moves_pending")},
        ),
    ),
)

_ROUTES = Row(
    "Routes",
    (
        after(
            lines(
                "Route writes",
                "What gateways follow, by outcome. `refused`: a higher epoch was there; `failed`: "
                "tried again.",
                "cps",
                {"{{outcome}}": rate("epp_fleet_route_writes_total", COORDINATORS, "outcome")},
            ),
            Event.WORKER_KILL,
        ),
        after(
            lines(
                "Time of a batch of routes",
                "Gateways learn of a move so much later than it was decided.",
                "s",
                quantiles("epp_fleet_route_write_seconds", COORDINATORS),
            ),
            Event.WORKER_KILL,
        ),
        after(
            lines(
                "Foreign route writes",
                "Routes found that the leader had not written; each was repaired.",
                "cps",
                {"{{pod}}": rate("epp_fleet_stale_route_writes_total", COORDINATORS, "pod")},
            ),
            Event.FOREIGN_ROUTE,
        ),
        on_cluster(
            lines(
                "EndpointSlices failing",
                "Groups whose slice could not be written when it was last tried: gateways follow "
                "the old one.",
                "short",
                {"{{pod}}": f"epp_fleet_routes_failing{{{COORDINATORS}}}"},
            )
        ),
        on_cluster(
            lines(
                "Age of the copy of EndpointSlices",
                "Since the API server last showed that it is current.",
                "s",
                {"{{pod}}": f"epp_fleet_routes_age_seconds{{{COORDINATORS}}}"},
            )
        ),
        on_cluster(
            lines(
                "Throttled by the API server",
                "Requests for slices that it answered with 429; writing slows down by itself.",
                "cps",
                {"{{pod}}": rate("epp_fleet_routes_throttled_total", COORDINATORS, "pod")},
            )
        ),
    ),
)

_REFUSALS = f"epp_fleet_pool_refusals{{{COORDINATORS}}}"

_SOURCES = Row(
    "Pools and pods as they are read",
    (
        lines(
            "Age of the copy",
            "Since pools and pods were last known to be current, by process. Growing: that process "
            "does not hear from the API server, and serves what it knew.",
            "s",
            {"{{pod}}": f"epp_fleet_source_age_seconds{{{F}}}"},
        ),
        lines(
            "Problems",
            "Failing reads, and objects that are not held as they are now.",
            "short",
            {"{{pod}}": f"epp_fleet_source_problems{{{F}}}"},
        ),
        after(
            lines(
                "Pools refused",
                "By reason; each has a Warning event and a line in `epp-fleet explain POOL`.",
                "short",
                {
                    "{{reason}}": f"max by (reason) ({_REFUSALS}) > 0",
                    "pools served": f"max(epp_fleet_pools_claimed{{{COORDINATORS}}})",
                },
            ),
            Event.BAD_POOL,
        ),
        on_cluster(
            lines(
                "Lists and watches",
                "By resource: lists, watches, their events and failures.",
                "cps",
                {
                    "{{resource}} {{what}}": rate(
                        "epp_fleet_source_operations_total", F, "resource, what"
                    )
                },
            )
        ),
        on_cluster(
            lines(
                "API server",
                "Requests of all processes that it did not answer as hoped, by kind: `forbidden` "
                "lacks a right (deploy/base/rbac.yaml), `throttled` is asked too much.",
                "cps",
                {"{{kind}}": rate("epp_fleet_kube_errors_total", F, "kind")},
            )
        ),
        on_cluster(
            lines(
                "Objects held",
                "By resource and process.",
                "short",
                {"{{pod}} {{resource}}": f"epp_fleet_source_objects{{{F}}}"},
            )
        ),
        on_cluster(
            lines(
                "Certificates",
                "How long the internal port's certificate is still good; it is renewed in its last "
                "30 days.",
                "s",
                {"{{pod}}": f"epp_fleet_certificate_expiry_seconds{{{COORDINATORS}}}"},
            )
        ),
    ),
    closed=True,
)

_PROCESS = Row(
    "Processes",
    (
        lines(
            "CPU",
            "Cores, of each coordinator. Placement is the leader's.",
            "none",
            {"{{pod}}": rate("process_cpu_seconds_total", COORDINATORS, "pod")},
        ),
        lines(
            "Resident memory",
            "Of each coordinator.",
            "bytes",
            {"{{pod}}": f"process_resident_memory_bytes{{{COORDINATORS}}}"},
        ),
        lines(
            "Open files",
            "Of its limit.",
            "percentunit",
            {"{{pod}}": f"process_open_fds{{{COORDINATORS}}} / process_max_fds{{{COORDINATORS}}}"},
        ),
        table(
            "Versions",
            "Which program each coordinator runs, since when.",
            {
                "pod": "Coordinator",
                "version": "Version",
                "python": "Python",
                "compiled": "Compiled",
            },
            {
                "build": "max by (pod, version, python, compiled) "
                f"(epp_fleet_build_info{{{COORDINATORS}}})",
                "Started": f"1000 * max by (pod) (process_start_time_seconds{{{COORDINATORS}}})",
            },
            units={"Started": "dateTimeAsIso"},
            hide=("build",),
            height=7,
        ),
    ),
    closed=True,
)

DASHBOARD = Dashboard(
    COORDINATION_UID,
    "EPP Fleet / Coordination and Redis",
    "Who leads, what the store does, which workers are alive, how routes are written, and what is "
    "read of pools and pods.",
    (FLEET, COORDINATOR, RUNBOOK),
    (_GLANCE, _LEADERSHIP, _STORE, _MEMBERS, _ROUTES, _SOURCES, _PROCESS),
    {
        "Leader": "EppFleetNoLeader",
        "Changes of leader": "EppFleetLeaderFlapping",
        "Oldest map": "EppFleetMapStale",
        "Series left out": "EppFleetSeriesDropped",
        "Failed calls by kind": "EppFleetRedisUnreachable",
        "Certificates": "EppFleetCertificateExpiring",
    },
)

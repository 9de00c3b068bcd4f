"""The Worker dashboard: what workers serve and hold, and how they bear it."""

from tests.dashboards.choices import FLEET, RUNBOOK, WORKER, WORKER_UID, to_worker
from tests.dashboards.panels import GOOD_BELOW_ONE, lines, stat, table
from tests.dashboards.parts import Dashboard, Event, Row, after, on_cluster
from tests.dashboards.promql import WORKERS, quantiles, rate

_GLANCE = Row(
    "At a glance",
    (
        stat(
            "Workers",
            "Of those that were chosen, the ones that Prometheus reaches.",
            "short",
            f"count(epp_fleet_streams_open{{{WORKERS}}})",
        ),
        stat(
            "Groups owned",
            "Route groups that they own.",
            "short",
            f'sum(epp_fleet_hold{{{WORKERS},hold="owner"}})',
        ),
        stat(
            "Streams open",
            "ext_proc streams. The autoscaler adds a worker above 4,000 each.",
            "short",
            f"sum(epp_fleet_streams_open{{{WORKERS}}})",
        ),
        stat(
            "Requests",
            "Picked or refused.",
            "reqps",
            rate("epp_fleet_picks_total", WORKERS),
            decimals=1,
        ),
        stat(
            "Busiest loop",
            "Share of a core that the busiest serving loop uses. The autoscaler aims at 60 %.",
            "percentunit",
            f"max(epp_fleet_loop_busy_ratio{{{WORKERS}}})",
            steps=(("green", 0), ("yellow", 0.6), ("red", 0.85)),
        ),
        stat(
            "Worst loop delay",
            "Lately: every stream of that worker waited so long.",
            "s",
            f"max(epp_fleet_loop_lag_seconds{{{WORKERS}}})",
            steps=(("green", 0), ("yellow", 0.1), ("red", 0.5)),
        ),
        stat(
            "Endpoints failing",
            "Ready endpoints whose metrics cannot be read.",
            "short",
            f"sum(epp_fleet_endpoints_failing{{{WORKERS}}})",
            steps=GOOD_BELOW_ONE,
        ),
        stat(
            "Oldest map",
            "Since the worker that is worst off last heard that its share is the newest. Above a "
            "few seconds it hears neither the leader nor the store, and serves what it has.",
            "s",
            f"max(epp_fleet_map_age_seconds{{{WORKERS}}})",
            steps=(("green", 0), ("yellow", 5), ("red", 30)),
        ),
    ),
)

_SERVING = Row(
    "Serving",
    (
        lines(
            "Requests by worker",
            "Picked or refused.",
            "reqps",
            {"{{pod}}": rate("epp_fleet_picks_total", WORKERS, "pod")},
        ),
        after(
            lines(
                "Refused by status",
                "400 the request, 413 its size, 429 shed or nothing suitable, 503 no ready "
                "endpoint. The Pool dashboard says whose.",
                "reqps",
                {
                    "{{outcome}}": rate(
                        "epp_fleet_picks_total", f'{WORKERS},outcome!="picked"', "outcome"
                    )
                },
            ),
            Event.BAD_REQUEST,
        ),
        lines(
            "Streams ended by code",
            "CANCELLED is the normal end of most; UNAVAILABLE is a stray that nobody took.",
            "reqps",
            {"{{code}}": rate("epp_fleet_streams_total", WORKERS, "code")},
        ),
        lines(
            "Streams open",
            "Responses run through those that are tracked.",
            "short",
            {"{{pod}}": f"epp_fleet_streams_open{{{WORKERS}}}"},
        ),
        lines(
            "Gateway connections",
            "One for each thread and cluster of an Envoy.",
            "short",
            {"{{pod}}": f"epp_fleet_connections_open{{{WORKERS}}}"},
        ),
        lines(
            "Ends of responses",
            "`aborted`: the stream broke first, by the client or the model server; `detached`: it "
            "ended with the pick.",
            "reqps",
            {"{{outcome}}": rate("epp_fleet_responses_total", WORKERS, "outcome")},
        ),
        after(
            lines(
                "Strays by worker",
                "Streams of pools that are owned elsewhere, by what became of them.",
                "reqps",
                {"{{pod}} {{outcome}}": rate("epp_fleet_strays_total", WORKERS, "pod, outcome")},
            ),
            Event.STRAY,
        ),
        lines(
            "Strays waiting",
            "Streams held until their pool has an owner, at most 5 s each.",
            "short",
            {"{{pod}}": f"epp_fleet_strays_waiting{{{WORKERS}}}"},
        ),
        lines(
            "Time to pick",
            "Of all pools.",
            "s",
            quantiles("llm_d_epp_scheduler_e2e_duration_seconds", WORKERS),
        ),
    ),
)

_LOOP = Row(
    "Loop and process",
    (
        lines(
            "Serving loop",
            "Share of a core: a worker uses one. Above 0.85 requests wait; add workers.",
            "percentunit",
            {"{{pod}}": f"epp_fleet_loop_busy_ratio{{{WORKERS}}}"},
            steps=(("green", 0), ("red", 0.85)),
        ),
        lines(
            "Delay of the serving loop",
            "The worst lately.",
            "s",
            {"{{pod}}": f"epp_fleet_loop_lag_seconds{{{WORKERS}}}"},
        ),
        lines(
            "CPU",
            "Cores, of the whole process.",
            "none",
            {"{{pod}}": rate("process_cpu_seconds_total", WORKERS, "pod")},
        ),
        lines(
            "Resident memory",
            "Of the process.",
            "bytes",
            {"{{pod}}": f"process_resident_memory_bytes{{{WORKERS}}}"},
        ),
        lines(
            "Open files",
            "Most are gateway connections; the limit is the process's own.",
            "percentunit",
            {
                "{{pod}}": f"process_open_fds{{{WORKERS}}} / process_max_fds{{{WORKERS}}}",
            },
        ),
        lines(
            "Prefix index",
            "Memory of the prompts' prefixes that the scorers remember.",
            "bytes",
            {"{{pod}}": f"epp_fleet_prefix_index_bytes{{{WORKERS}}}"},
        ),
    ),
)

_HOLDS = Row(
    "What they hold",
    (
        lines(
            "Groups by hold",
            "`owner` serves, `standby` is warm, `opening` gets ready, `draining` gave it away.",
            "short",
            {"{{hold}}": f"sum by (hold) (epp_fleet_hold{{{WORKERS}}})"},
            stacked=True,
        ),
        lines(
            "Groups owned",
            "By worker.",
            "short",
            {"{{pod}}": f'sum by (pod) (epp_fleet_hold{{{WORKERS},hold="owner"}})'},
        ),
        lines(
            "Load",
            "1 for each owned group, plus its streams per second.",
            "short",
            {"{{pod}}": f"epp_fleet_owned_load{{{WORKERS}}}"},
        ),
        lines(
            "State not yet sent",
            "Age of the oldest change that a stand-by has not been sent: so much it would lack.",
            "s",
            {"{{pod}}": f"epp_fleet_state_stream_lag_seconds{{{WORKERS}}}"},
        ),
        lines(
            "State streams",
            "Bytes between owners and stand-bys.",
            "Bps",
            {
                "{{pod}} {{direction}}": rate(
                    "epp_fleet_state_bytes_total", WORKERS, "pod,direction"
                )
            },
        ),
        lines(
            "State snapshots",
            "`lagged`: a follower was too slow and begins anew; `unreadable` should not be.",
            "cps",
            {"{{outcome}}": rate("epp_fleet_state_snapshots_total", WORKERS, "outcome")},
        ),
        lines(
            "Share's version",
            "Version of the share that each worker has applied. A line that stays behind is a "
            "worker that does not hear of changes that concern it.",
            "none",
            {"{{pod}}": f"epp_fleet_map_version{{{WORKERS}}}"},
        ),
        lines(
            "Map age",
            "Since each last heard that its share is the newest.",
            "s",
            {"{{pod}}": f"epp_fleet_map_age_seconds{{{WORKERS}}}"},
        ),
        lines(
            "Epoch",
            "The highest leadership that each has heard of.",
            "none",
            {"{{pod}}": f"epp_fleet_epoch{{{WORKERS}}}"},
        ),
    ),
)

_DATA = Row(
    "Model servers' metrics",
    (
        after(
            lines(
                "Scrapes",
                "Metrics pages read, by outcome.",
                "cps",
                {"{{outcome}}": rate("epp_fleet_scrapes_total", WORKERS, "outcome")},
            ),
            Event.DEAD_ENDPOINT,
        ),
        after(
            lines(
                "Endpoints failing",
                "Ready endpoints whose metrics cannot be read; they are picked by what is known.",
                "short",
                {"{{pod}}": f"epp_fleet_endpoints_failing{{{WORKERS}}}"},
            ),
            Event.DEAD_ENDPOINT,
        ),
        lines(
            "Age of what picks are made with",
            "Of the oldest metrics of a ready endpoint, over the pools that the worker owns. Idle "
            "pools are read every 30 s at most.",
            "s",
            {"{{pod}}": f"epp_fleet_scrape_age_seconds{{{WORKERS}}}"},
        ),
    ),
)

_BOUNDS = Row(
    "Bounds and faults",
    (
        lines(
            "Bounds passed",
            "How often a peer passed a bound, and paid for it; docs/transport.md names them.",
            "cps",
            {"{{bound}}": rate("epp_fleet_bounds_hit_total", WORKERS, "bound")},
        ),
        lines(
            "Held for peers",
            "Bytes that gateways make the workers hold.",
            "bytes",
            {"{{what}}": f"sum by (what) (epp_fleet_held_bytes{{{WORKERS}}})"},
            stacked=True,
        ),
        lines(
            "Handshakes of gateways",
            "TLS, by outcome.",
            "cps",
            {"{{outcome}}": rate("epp_fleet_ext_proc_handshakes_total", WORKERS, "outcome")},
        ),
        on_cluster(
            lines(
                "Certificates",
                "How long the internal port's certificate is still good; it is renewed in its last "
                "30 days.",
                "s",
                {"{{pod}}": f"epp_fleet_certificate_expiry_seconds{{{WORKERS}}}"},
            )
        ),
        table(
            "Versions",
            "Which program each worker runs, since when.",
            {"pod": "Worker", "version": "Version", "python": "Python", "compiled": "Compiled"},
            {
                "build": "max by (pod, version, python, compiled) "
                f"(epp_fleet_build_info{{{WORKERS}}})",
                "Started": f"1000 * max by (pod) (process_start_time_seconds{{{WORKERS}}})",
            },
            units={"Started": "dateTimeAsIso"},
            links={"Worker": to_worker("${__data.fields.Worker}")},
            hide=("build",),
            height=8,
        ),
    ),
    closed=True,
)

DASHBOARD = Dashboard(
    WORKER_UID,
    "EPP Fleet / Worker",
    "What workers serve and hold, their loops, what they read of model servers, their bounds.",
    (FLEET, WORKER, RUNBOOK),
    (_GLANCE, _SERVING, _LOOP, _HOLDS, _DATA, _BOUNDS),
    {
        "Oldest map": "EppFleetMapStale",
        "Serving loop": "EppFleetNearCapacity",
        "Scrapes": "EppFleetScrapeFailing",
        "Certificates": "EppFleetCertificateExpiring",
    },
)

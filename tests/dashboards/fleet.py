"""The Fleet dashboard: the shard map now and over time, its balance, its moves, who leads."""

from tests.dashboards.choices import (
    FLEET,
    FLEET_UID,
    MOVED,
    NAMESPACES,
    POOLS,
    RUNBOOK,
    WORKER,
    to_pool,
    to_worker,
)
from tests.dashboards.panels import GOOD_BELOW_ONE, bars, lines, name, owners, stat, table
from tests.dashboards.parts import Dashboard, Event, Row, after
from tests.dashboards.promql import POOLS as CHOSEN
from tests.dashboards.promql import F, leaders, quantiles, rate, shard

_INFO = "epp_fleet_pool_owner_info"
_OWNER = f'{_INFO}{{{CHOSEN},role="owner",worker=~"$worker"}}'

_ALIVE = leaders("epp_fleet_members", 'state="alive"')

_GLANCE = Row(
    "At a glance",
    (
        name(
            "Leader",
            "The coordinator that places pools. Exactly one; none for a few seconds while another "
            "takes over. Pools already placed are served on without one.",
            f"epp_fleet_leader{{{F}}} == 1",
            "pod",
            none="nobody",
            width=6,
        ),
        stat(
            "Pools",
            "InferencePools that this fleet serves.",
            "short",
            f"sum(max by (fleet) (epp_fleet_pools_claimed{{{F}}}))",
        ),
        stat(
            "Workers alive",
            "As the leader judges them. With fewer than two, pools have no stand-by.",
            "short",
            f"sum({_ALIVE})",
            steps=(("red", 0), ("green", 2)),
        ),
        after(
            stat(
                "Unowned now",
                "Route groups that nobody serves. Above 0 while no worker can take them; see "
                "Unowned for, and `epp-fleet explain POOL`.",
                "short",
                f"sum({leaders('epp_fleet_unowned_groups')})",
                steps=GOOD_BELOW_ONE,
            ),
            Event.LONE_WORKER_KILL,
        ),
        after(
            stat(
                "Unowned for",
                "How long the group that is unowned longest has been so.",
                "s",
                f"max({leaders('epp_fleet_unowned_longest_seconds')})",
                steps=(("green", 0), ("orange", 1), ("red", 5)),
            ),
            Event.LONE_WORKER_KILL,
        ),
        after(
            stat(
                "Unowned in this range",
                "Groups without an owner times the seconds that lasted, over the range on top.",
                "s",
                f"sum(increase(epp_fleet_unowned_seconds_total{{{F}}}[$__range]))",
                steps=(("green", 0), ("orange", 1), ("red", 60)),
                decimals=1,
            ),
            Event.LONE_WORKER_KILL,
        ),
        stat(
            "Balance",
            "The fullest worker's load over the mean. Placement aims at 1.10 with many pools; a "
            "single pool that is heavier than a worker's share cannot be divided.",
            "none",
            f"max(epp_fleet_worker_load{{{F}}}) / avg(epp_fleet_worker_load{{{F}}})",
            steps=(("green", 0), ("yellow", 1.25), ("red", 2)),
            decimals=2,
        ),
    ),
)

_SHARD_MAP = Row(
    "Shard map",
    (
        owners(
            "Owner of each pool",
            "Who serves each pool over time. A colour is a worker; a gap is a time without owner, "
            "or without leader. `Show` on top leaves only pools that changed their owner. The "
            "leader shows the first `metrics.max_pools` pools by name.",
            shard(
                f"max by (namespace, pool, worker) ({_OWNER}) and on (namespace, pool) "
                "count by (namespace, pool) (max by (namespace, pool, worker) "
                f'(last_over_time({_INFO}{{{CHOSEN},role="owner"}}[$__range] @ end()))) '
                "> $owners_more_than"
            ),
            "shard",
            links=(to_worker("${__value.text}"),),
            height=13,
        ),
        table(
            "Shard map now",
            "Pool, owner, stand-by and since when. A pool without stand-by has nobody warm to take "
            "over: with two living workers there is always one.",
            {
                "namespace": "Namespace",
                "pool": "Pool",
                "worker": "Owner",
                "standby": "Stand-by",
                "group": "Route group",
            },
            {
                "owner": f"max by (namespace, pool, group, worker) ({_OWNER})",
                "stand-by": "max by (namespace, pool, standby) (label_replace("
                f'{_INFO}{{{CHOSEN},role="standby"}}, "standby", "$1", "worker", "(.*)"))',
                "Since": "1000 * max by (namespace, pool) "
                f"(epp_fleet_pool_since_seconds{{{CHOSEN}}})",
                "Requests": rate("epp_fleet_pool_picks_total", CHOSEN, "namespace, pool"),
            },
            units={"Since": "dateTimeFromNow", "Requests": "reqps"},
            links={
                "Pool": to_pool("${__data.fields.Namespace}", "${__data.fields.Pool}"),
                "Owner": to_worker("${__data.fields.Owner}"),
                "Stand-by": to_worker('${__data.fields["Stand-by"]}'),
            },
            hide=("owner", "stand-by"),
        ),
    ),
)

_BALANCE = Row(
    "Balance",
    (
        bars(
            "Groups owned now",
            "Route groups by owner. Workers of one weight have about as many, unless some pools "
            "are heavy.",
            "short",
            f"max by (worker) (epp_fleet_worker_owned_groups{{{F}}})",
            "{{worker}}",
        ),
        lines(
            "Groups owned",
            "By owner over time: a death or a drain shows as a step to 0, a join as one up.",
            "short",
            {"{{worker}}": f"max by (worker) (epp_fleet_worker_owned_groups{{{F}}})"},
        ),
        lines(
            "Load by weight",
            "As placement counts it: 1 for each group plus its streams per second, over the "
            "worker's weight. The lines should lie close together.",
            "short",
            {
                "{{worker}}": f"max by (worker) (epp_fleet_worker_load{{{F}}}) "
                f"/ max by (worker) (epp_fleet_worker_weight{{{F}}})"
            },
        ),
    ),
)

_MOVES = Row(
    "Moves",
    (
        after(
            lines(
                "Moves per minute",
                "Groups that changed hands, by reason and outcome. At rest none; `balance` all "
                "the time means that loads swing.",
                "short",
                {
                    "{{reason}} {{outcome}}": rate(
                        "epp_fleet_moves_total", F, "reason, outcome", unit=60
                    )
                    + " > 0"
                },
            ),
            Event.DRAIN,
        ),
        after(
            lines(
                "Steps of a hand-over",
                "`open`: until a gainer is ready; `acknowledge`: until it reports that it serves; "
                "`drain`: until the former owner is done. `open` near 30 s is a gainer that does "
                "not get ready (membership of both in epp-fleet status).",
                "s",
                quantiles("epp_fleet_handover_step_seconds", F, "step"),
            ),
            Event.DRAIN,
        ),
        lines(
            "Moves pending",
            "Planned moves that wait for their turn or are under way.",
            "short",
            {"pending": f"sum({leaders('epp_fleet_moves_pending')})"},
        ),
        lines(
            "Route groups by phase",
            "`owned` at rest; `opening` and `moving` are under way; `quarantined` groups made "
            "workers die and are held back.",
            "short",
            {"{{phase}}": f"max by (phase) ({leaders('epp_fleet_groups')})"},
            stacked=True,
        ),
        lines(
            "Workers by state",
            "As the leader judges them; `suspect` is silent on one channel.",
            "short",
            {"{{state}}": f"max by (state) ({leaders('epp_fleet_members')})"},
            stacked=True,
        ),
        after(
            lines(
                "Map to workers",
                "From the begin of a publication until a worker reports that it applied it.",
                "s",
                quantiles("epp_fleet_map_propagation_seconds", F),
            ),
            Event.DRAIN,
        ),
    ),
)

_TRAFFIC = Row(
    "Traffic",
    (
        lines(
            "Requests",
            "Picks of all workers by outcome: `picked`, or the HTTP status of the refusal.",
            "reqps",
            {"{{outcome}}": rate("epp_fleet_picks_total", F, "outcome")},
            stacked=True,
        ),
        after(
            lines(
                "Strays",
                "Streams at a worker that does not own their pool. Some after each move while "
                "gateways catch up; all the time: a gateway does not follow the routes. `failed` "
                "is a request lost.",
                "reqps",
                {"{{outcome}}": rate("epp_fleet_strays_total", F, "outcome")},
            ),
            Event.STRAY,
        ),
        lines(
            "Busiest pools",
            "The ten with most requests now.",
            "reqps",
            {
                "{{shard}}": shard(
                    "topk(10, "
                    + rate("epp_fleet_pool_picks_total", CHOSEN, "namespace, pool")
                    + ")"
                )
            },
        ),
    ),
)

DASHBOARD = Dashboard(
    FLEET_UID,
    "EPP Fleet / Fleet",
    "The shard map now and over time: which worker serves which pool, how that changes, how even "
    "it is, and who leads.",
    (FLEET, NAMESPACES, POOLS, WORKER, MOVED, RUNBOOK),
    (_GLANCE, _SHARD_MAP, _BALANCE, _MOVES, _TRAFFIC),
    {
        "Leader": "EppFleetNoLeader",
        "Unowned for": "EppFleetPoolUnowned",
        "Balance": "EppFleetImbalance",
        "Moves per minute": "EppFleetHandoverFailing",
        "Route groups by phase": "EppFleetPoolQuarantined",
        "Strays": "EppFleetStraysNotFalling",
    },
)

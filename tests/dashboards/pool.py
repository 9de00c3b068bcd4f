"""The Pool dashboard: one InferencePool, from its owner to its model servers."""

from tests.dashboards.choices import FLEET, NAMESPACE, POOL, POOL_UID, RUNBOOK, to_worker
from tests.dashboards.panels import lines, name, owners, stat
from tests.dashboards.parts import Dashboard, Event, Row, after
from tests.dashboards.promql import POOLS, quantiles, rate

_INFO = f"epp_fleet_pool_owner_info{{{POOLS}"

_OWNERSHIP = Row(
    "Who serves it",
    (
        name(
            "Owner",
            "The worker that picks for this pool.",
            f'max by (worker) ({_INFO},role="owner"}})',
            "worker",
            none="nobody",
            width=5,
        ),
        name(
            "Stand-by",
            "The worker that follows the owner's state and takes over if it dies.",
            f'max by (worker) ({_INFO},role="standby"}})',
            "worker",
            none="nobody",
            width=5,
        ),
        stat(
            "Owned since",
            "The last change of its owners.",
            "dateTimeFromNow",
            f"1000 * max(epp_fleet_pool_since_seconds{{{POOLS}}})",
            width=4,
        ),
        stat(
            "Ready endpoints",
            "Model servers that may be picked, as the owner sees them. 0 means 503 to everybody.",
            "short",
            f"max(llm_d_epp_ready_endpoints{{{POOLS}}})",
            steps=(("red", 0), ("green", 1)),
        ),
        stat(
            "Streams open",
            "ext_proc streams of this pool; responses run through those that are tracked.",
            "short",
            f"sum(epp_fleet_pool_streams_open{{{POOLS}}})",
        ),
        stat(
            "Requests",
            "Picked or refused.",
            "reqps",
            rate("epp_fleet_pool_picks_total", POOLS),
            decimals=1,
            width=4,
        ),
        owners(
            "Who held it",
            "A line for each role, a colour for each worker: `owner` picks, `standby` is warm, "
            "`draining` gave it away and still answers streams that come late.",
            f"max by (role, worker) ({_INFO}}})",
            "role",
            links=(to_worker("${__value.text}"),),
            height=6,
        ),
    ),
)

_REQUESTS = Row(
    "Requests",
    (
        lines(
            "Requests by outcome",
            "`picked`, or the HTTP status of the refusal: 400 the request, 413 its size, 429 shed "
            "or nothing suitable, 503 no ready endpoint.",
            "reqps",
            {"{{outcome}}": rate("epp_fleet_pool_picks_total", POOLS, "outcome")},
            stacked=True,
        ),
        after(
            lines(
                "Errors by reason",
                "Requests of this pool that got no endpoint, and why.",
                "reqps",
                {"{{reason}}": rate("epp_fleet_pool_errors_total", POOLS, "reason")},
            ),
            Event.BAD_REQUEST,
        ),
        lines(
            "Streams open by worker",
            "The owner's, and after a move for a while those of the former one.",
            "short",
            {"{{pod}}": f"sum by (pod) (epp_fleet_pool_streams_open{{{POOLS}}})"},
        ),
        lines(
            "Time to first token",
            "From the request's headers to the first byte of the response, as the owner sees it.",
            "s",
            quantiles("llm_d_epp_request_ttft_seconds", POOLS),
        ),
        lines(
            "Duration",
            "From the request's headers to the end of the response.",
            "s",
            quantiles("llm_d_epp_request_duration_seconds", POOLS),
        ),
        lines(
            "Time to pick",
            "Scheduling alone: filters, scorers and the picker.",
            "s",
            quantiles("llm_d_epp_scheduler_e2e_duration_seconds", POOLS),
        ),
        lines(
            "Tokens",
            "Of prompts and of answers, by what model servers report.",
            "cps",
            {
                "prompt": rate("llm_d_epp_request_input_tokens_sum", POOLS),
                "answer": rate("llm_d_epp_request_output_tokens_sum", POOLS),
            },
        ),
        lines(
            "Requests by model",
            "As the client named it, and what it was rewritten to.",
            "reqps",
            {
                "{{model_name}} -> {{target_model_name}}": rate(
                    "llm_d_epp_request_total", POOLS, "model_name, target_model_name"
                )
            },
        ),
        lines(
            "Answered by another endpoint",
            "Responses that did not come from the endpoint that was picked: a gateway that does "
            "not follow the pick.",
            "reqps",
            {"elsewhere": rate("epp_fleet_served_elsewhere_total", POOLS)},
        ),
    ),
)

_ENDPOINTS = Row(
    "Endpoints",
    (
        lines(
            "Picks by endpoint",
            "How requests are spread. One line far above the others: its prefixes are asked for, "
            "or the others look full.",
            "reqps",
            {
                "{{endpoint_name}}": rate(
                    "llm_d_epp_scheduler_attempts_total", POOLS, "endpoint_name"
                )
            },
        ),
        lines(
            "In flight by endpoint",
            "Requests that this fleet sent there and that are not over.",
            "short",
            {"{{endpoint}}": f"sum by (endpoint) (epp_fleet_inflight_requests{{{POOLS}}})"},
        ),
        lines(
            "Queue by endpoint",
            "Requests that wait inside the model server.",
            "short",
            {
                "{{model_server_endpoint}}": "max by (model_server_endpoint) "
                f"(llm_d_epp_per_endpoint_queue_size{{{POOLS}}})"
            },
        ),
        lines(
            "KV cache in use",
            "Mean of the endpoints, and how far they are apart.",
            "percentunit",
            {
                "mean": f"max(llm_d_epp_average_kv_cache_utilization{{{POOLS}}})",
                "standard deviation": f"max(llm_d_epp_std_dev_kv_cache_utilization{{{POOLS}}})",
            },
        ),
        lines(
            "Running and waiting",
            "Requests in an endpoint, mean of all.",
            "short",
            {
                "running": f"max(llm_d_epp_average_running_requests{{{POOLS}}})",
                "waiting": f"max(llm_d_epp_average_queue_size{{{POOLS}}})",
            },
        ),
        lines(
            "Ready endpoints",
            "As the pool's holders see them.",
            "short",
            {"ready": f"max(llm_d_epp_ready_endpoints{{{POOLS}}})"},
        ),
    ),
)

DASHBOARD = Dashboard(
    POOL_UID,
    "EPP Fleet / Pool",
    "One InferencePool: who owns it, what its requests and its model servers do.",
    (FLEET, NAMESPACE, POOL, RUNBOOK),
    (_OWNERSHIP, _REQUESTS, _ENDPOINTS),
)

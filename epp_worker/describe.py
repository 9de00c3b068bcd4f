"""A held group as `/debug/holds` shows it."""

from collections.abc import Iterable
from typing import Any

from epp_worker.group import Group
from epp_worker.holdings import Holdings
from fleet.sources.contract import Problem


def describe_holdings(holdings: Holdings, problems: Iterable[Problem]) -> dict[str, Any]:
    """All that is held, on whose word, and what is wrong in the source."""
    return {
        "incarnation": holdings.incarnation,
        "applied": str(holdings.applied),
        "seen": str(holdings.seen),
        "told_by_peers": holdings.hearsay,
        "holds": [describe_group(group) for group in holdings],
        "source_problems": [
            {"where": problem.where, "message": problem.message} for problem in problems
        ],
    }


def describe_group(group: Group) -> dict[str, Any]:
    """Plain values, for JSON; names and addresses only, nothing of any request."""
    return {
        "group": str(group.key),
        "hold": group.hold.value,
        "owner": group.owner,
        "serving": group.serving,
        "synced": group.synced(),
        "streams": group.streams,
        "streams_per_second": round(group.rate, 3),
        "pools": {
            str(ref): {
                "uid": state.pool.uid,
                "endpoints": [one.address for one in state.endpoints()],
                "response_phase": state.response_phase,
                "objectives": dict(state.intents.priorities),
                "rewritten_models": sorted(state.intents.exact),
                "rewrites_any_model": state.intents.generic is not None,
            }
            for ref, state in group.states.items()
        },
    }

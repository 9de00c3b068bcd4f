"""A held group as `/debug/holds` shows it."""

from typing import Any

from epp_worker.group import Group


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
            }
            for ref, state in group.states.items()
        },
    }

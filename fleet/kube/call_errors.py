"""How many calls of an API server failed, by kind; plain numbers, for metrics."""

from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeThrottled,
    KubeUnavailable,
)

ANSWERS = (KubeConflict, KubeGone, KubeNotFound)
"""What the caller expects now and then: no fault of anybody's."""

KINDS = ("unavailable", "forbidden", "throttled", "refused")


class CallErrors:
    """Of one client, since its start."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(KINDS, 0)

    def count(self, error: KubeError) -> None:
        """One more, if it is a fault."""
        if isinstance(error, ANSWERS):
            return
        if isinstance(error, KubeUnavailable):
            kind = "unavailable"
        elif isinstance(error, KubeForbidden):
            kind = "forbidden"
        else:
            kind = "throttled" if isinstance(error, KubeThrottled) else "refused"
        self.counts[kind] += 1

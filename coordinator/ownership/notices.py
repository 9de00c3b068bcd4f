"""What a pool's owner is told about its decision: pure, one notice per reason."""

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.ownership.facts import Claimed, Decision

NORMAL = "Normal"
WARNING = "Warning"
CLAIMED = "Claimed"
SERVED = "Served"
QUARANTINED = "Quarantined"
PICKER_CONFIG = "PickerConfigNotTaken"


@dataclass(frozen=True, slots=True)
class Notice:
    """One event to be: `reason` in CamelCase, `message` for people. Never says what changes by
    itself (owners, versions): a notice that differs is told again."""

    type: str
    reason: str
    message: str


def notices(decision: Decision, fleet: str) -> Mapping[str, Notice]:
    """What is to be told because of `decision`, by reason; nothing of pools that are not ours."""
    found: dict[str, Notice] = {}
    if isinstance(decision, Claimed):
        services = ", ".join(str(each.group) for each in decision.served)
        message = f"Claimed by the fleet {fleet} ({decision.why}); reached through {services}"
        found[CLAIMED] = Notice(NORMAL, CLAIMED, message)
    for refusal in decision.refusals:
        reason = refusal.reason.value
        if reason in found:  # the same fault of both Services
            message = f"{found[reason].message} {refusal.message}"
            found[reason] = Notice(WARNING, reason, message)
        else:
            found[reason] = Notice(WARNING, reason, refusal.message)
    return found


def misconfigured(problem: str) -> Notice:
    """It does not pick by what it asks for, or not by its newest form."""
    return Notice(
        WARNING,
        PICKER_CONFIG,
        f"The picker configuration is not taken: {problem}. The pool is served on by the last "
        "good one",
    )


def served(fleet: str) -> Notice:
    """The first time that a worker serves the pool."""
    return Notice(NORMAL, SERVED, f"Served by the fleet {fleet}")


def quarantined(fleet: str) -> Notice:
    """Workers died of it, as far as can be told."""
    return Notice(
        WARNING,
        QUARANTINED,
        f"Workers of the fleet {fleet} died soon after they were given this pool, one after the "
        "other, so it is kept on one worker without a stand-by. It is released after a time "
        "without such a death, or when the pool is changed",
    )

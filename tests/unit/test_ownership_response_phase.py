"""What a pool's owner is told of its response phase."""

from dataclasses import replace

import pytest

from coordinator.ownership import Claimed, RefusalReason, decide
from coordinator.ownership.notices import notices
from fleet.model.pools import RESPONSE_PHASE
from fleet.settings.model import OwnershipSettings
from tests.ownership_facts import FLEET, OURS, pool

SETTINGS = OwnershipSettings(controller_name=OURS)


def decided(text: str) -> Claimed:
    plain = pool("a")
    asked = replace(plain, annotations={**plain.annotations, RESPONSE_PHASE: text})
    (decision,) = decide([asked], {}, {}, SETTINGS, FLEET).values()
    assert isinstance(decision, Claimed)
    return decision


def test_an_unknown_phase_is_a_warning_and_the_pool_is_served() -> None:
    """An event of its own reason, which says what is known."""
    decision = decided("sometimes")
    assert [refusal.reason for refusal in decision.refusals] == [RefusalReason.RESPONSE_PHASE]
    told = notices(decision, FLEET)["InvalidResponsePhase"]
    assert told.type == "Warning"
    assert told.message == (
        f"annotation {RESPONSE_PHASE}: 'sometimes' is unknown; use one of track, detach, drain; "
        "it is ignored"
    )


@pytest.mark.parametrize("text", ["track", " detach ", "drain", ""])
def test_a_known_phase_is_no_matter(text: str) -> None:
    """As the workers read it: blanks around it do not count, and nothing means nothing."""
    assert decided(text).refusals == ()

"""A worker that was declared dead: said once, and counted by what gave it away."""

import logging
from collections.abc import Iterable

from coordinator.metrics.leading import TermFigures
from coordinator.verdicts import Death

log = logging.getLogger(__name__)


def tell(deaths: Iterable[Death], figures: TermFigures) -> None:
    """Of each verdict."""
    for death in deaths:
        member = death.member
        figures.verdict(death.signal)
        log.warning(
            "worker dead",
            extra={
                "worker": member.id,
                "incarnation": member.incarnation,
                "signal": death.signal.value,
                "why": death.why,
            },
        )

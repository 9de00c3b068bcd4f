"""A leader that tells parts of shares wrongly: each is found out and asked for in whole, and the
fleet goes on as if nothing had been."""

from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest

from coordinator.leader.asked_again import MOST
from fleet.control.messages import AssignPart
from fleet.control.sharing import ShareMerging, ShareShortening
from fleet.model import Share
from tests.sim.mutations import forgets_to_end, forgets_to_say, half_told
from tests.sim.run import run
from tests.sim.scripts import SCRIPTS

_merged = ShareMerging.merged


@pytest.mark.parametrize(
    ("told", "some_fit"), [(half_told, True), (forgets_to_end, True), (forgets_to_say, False)]
)
def test_parts_that_do_not_fit_are_repaired(
    told: Callable[..., AssignPart | None], some_fit: bool
) -> None:
    """Parts that were lost on their way, and such that leave out what is gone or what changed.
    Whoever can make nothing of a few is told wholes alone from then on."""
    found = []
    useless: Counter[Any] = Counter()

    def merged(self: Any, part: AssignPart) -> Share | None:
        found.append(_merged(self, part))
        useless[self] += found[-1] is None
        return found[-1]

    with (
        mock.patch.object(ShareShortening, "next", told),
        mock.patch.object(ShareMerging, "merged", merged),
    ):
        outcome = run(SCRIPTS["part taken on a wrong base"])
    assert outcome.violation is None
    assert found.count(None) > 3
    assert len(found) > found.count(None) or not some_fit
    assert max(useless.values()) <= MOST + 1, "the next one may be on its way already"

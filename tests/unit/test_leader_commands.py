"""What people may tell the leader."""

import pytest

from coordinator.leader.commands import Commands
from coordinator.view import DrainConflict, UnknownWorker
from tests.membership_scenes import fleet_of


async def test_a_drain_before_the_term_has_links_is_to_be_tried_again() -> None:
    """A leader takes commands from its first moment, and knows workers by an earlier map before it
    talks to any."""
    membership, (known,) = fleet_of(1)
    commands = Commands(membership)
    with pytest.raises(DrainConflict, match=f"{known.id} is not reachable at present; try again"):
        await commands.set_drain(known.id, on=True)
    with pytest.raises(DrainConflict, match=f"{known.id} is not draining"):
        await commands.set_drain(known.id, on=False)
    with pytest.raises(UnknownWorker):
        await commands.set_drain("unknown", on=True)

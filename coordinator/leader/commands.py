"""What people may tell the leader: to hand a worker its drain mark, or to lift it."""

import asyncio
import logging

from coordinator.leader.linkset import Links
from coordinator.membership import Membership
from coordinator.view import DrainConflict, UnknownWorker

log = logging.getLogger(__name__)

DRAIN_SECONDS = 2.0
"""How long handing over a drain mark may take."""


class Commands:
    """Of one term.

    Attributes:
        links: to the workers; None until the term has made them, which takes as long as the store
            takes to say what it knows.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self.links: Links | None = None

    async def set_drain(self, worker: str, *, on: bool) -> None:
        """Returns when `worker` has the mark, or has it no more.

        Raises:
            UnknownWorker, DrainConflict: see `View.set_drain`.
        """
        member = self._membership.current(worker)
        if member is None:
            raise UnknownWorker(f"no live worker {worker!r}")
        if member.draining == on:
            raise DrainConflict(f"{worker} is {'already' if on else 'not'} draining")
        link = None if self.links is None else self.links.link_of(worker)
        if link is None:
            raise DrainConflict(f"{worker} is not reachable at present; try again")
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await link.set_drain(on)
        except TimeoutError:
            raise DrainConflict(f"{worker} does not take the mark; try again") from None
        log.info("drain mark sent", extra={"worker": worker, "on": on})

"""What this coordinator knows of the fleet: the newest map and the workers' statuses.

The leader writes what it decided, a follower what it heard; both live in the same process one
after the other, so that a new leader starts from what it knew as a follower.
"""

import asyncio
from collections.abc import Sequence

from fleet.model import MemberStatus, ShardMap


class Knowledge:
    """The newest map and statuses, and a way to wait for news. For one event loop."""

    def __init__(self) -> None:
        self.confirmed: float | None = None
        """When the leader or the store last said that nothing newer than the map known here was
        published, in monotonic seconds; None = never."""
        self.shard_map: ShardMap | None = None
        self.members: tuple[MemberStatus, ...] = ()
        self.revision = 0
        """Grows with every change."""
        self._news = asyncio.Event()

    def learn_map(self, shard_map: ShardMap) -> bool:
        """Take a map if it is newer than what is known; returns whether it was."""
        known = self.shard_map
        if known is not None and shard_map.version <= known.version:
            return False
        self.shard_map = shard_map
        self._tell()
        return True

    def learn_members(self, members: Sequence[MemberStatus]) -> None:
        """Take the leader's present view of the workers."""
        following = tuple(members)
        if following != self.members:
            self.members = following
            self._tell()

    async def after(self, revision: int) -> None:
        """Return once something is known that was not at `revision`."""
        while self.revision == revision:
            await self._news.wait()

    def _tell(self) -> None:
        self.revision += 1
        self._news.set()
        self._news = asyncio.Event()

"""Whom this worker follows: the owner of each group that it holds without owning it.

A stand-by and a group that opens follow, so that they are warm; one that drains follows the new
owner, since strays are still answered here. What was owned here has requests that are still open:
its new owner is told of them. One call for each owner carries all of its groups.
"""

from collections.abc import Callable, Iterable

from epp_worker.catalogue import Spawn
from epp_worker.group import Group
from epp_worker.handover.line import Ends, Line
from epp_worker.holdings import Holdings
from epp_worker.peers import Peers
from epp_worker.wheel import Lane
from fleet.model import GroupKey, Hold

OPENING_WAIT_SECONDS = 2.0
"""A group that opens waits at most so long for its owner's state: a move never hangs on it."""


class Following:
    """The lines to owners, by worker.

    Args:
        lane: its entries wait `OPENING_WAIT_SECONDS`.
        ends: makes what the lines share, given what to tell of settled groups.
    """

    def __init__(
        self,
        worker: str,
        holdings: Holdings,
        peers: Peers,
        spawn: Spawn,
        lane: Lane,
        ends: Callable[[Callable[[Iterable[GroupKey]], None]], Ends],
    ) -> None:
        self._worker = worker
        self._holdings = holdings
        self._peers = peers
        self._spawn = spawn
        self._lane = lane
        self._ends = ends(self._settled)
        self._lines: dict[str, Line] = {}
        self._line_of: dict[GroupKey, Line] = {}
        self._opening: dict[GroupKey, Group] = {}
        peers.on_change(self._peers_changed)

    def __len__(self) -> int:
        return len(self._lines)

    def group_changed(self, key: GroupKey) -> None:
        """The group was opened, turned or dropped here, or has other pools."""
        group = self._holdings.get(key)
        owner = None if group is None else self._owner(group)
        line = self._line_of.get(key)
        if line is not None and line.owner != owner:
            self._leave(key, line)
        if group is not None and owner is not None and group.states:
            line = self._line(owner)
            self._line_of[key] = line
            pools = tuple(group.states.values())
            feed = group.was_owner or group.hold is Hold.DRAINING
            line.put(key, pools, feed=feed)
        if group is None or group.hold is not Hold.OPENING:
            self._opening.pop(key, None)
        elif self._opening.get(key) is not group:
            self._opening[key] = group
            self._await(key, group, owner)

    def _owner(self, group: Group) -> str | None:
        if group.hold is Hold.OWNER or group.owner == self._worker:
            return None
        return group.owner

    def _line(self, owner: str) -> Line:
        line = self._lines.get(owner)
        if line is None:
            line = self._lines[owner] = Line(owner, self._ends)
            line.task = self._spawn(line.run(), f"state of {owner}")
        return line

    def _leave(self, key: GroupKey, line: Line) -> None:
        line.remove(key)
        del self._line_of[key]
        if not line.groups:
            del self._lines[line.owner]
            if line.task is not None:
                line.task.cancel()

    def _await(self, key: GroupKey, group: Group, owner: str | None) -> None:
        """Have an opening group wait for its owner's state, if any can come."""
        line = self._line_of.get(key)
        if self._peers.get(owner) is None or (line is not None and self._is_settled(line, key)):
            return
        group.awaits_state = True

        def expired() -> None:
            if group.awaits_state and self._opening.get(key) is group:
                self._settled((key,))

        self._lane.add(expired)

    def _is_settled(self, line: Line, key: GroupKey) -> bool:
        return line.old or key in line.settled

    def _settled(self, keys: Iterable[GroupKey]) -> None:
        waiting = [key for key in keys if key in self._opening]
        self._holdings.state_came(waiting)

    def _peers_changed(self) -> None:
        for line in tuple(self._lines.values()):
            line.peers_changed()
            if self._peers.get(line.owner) is None:
                self._settled(tuple(line.groups))
        living = {peer.incarnation for peer in self._peers.all().values()}
        self._ends.hearing.survivors(living, self._holdings)

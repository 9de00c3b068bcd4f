"""Leaving without losing a request: which connections are sent away, and when a worker may exit.

Pure decisions. Gateways that follow endpoint lists move by themselves and are left alone. A
connection through a ClusterIP sticks to its old worker for ever; one that still brings streams of
groups that others own, after the time that routes need, is asked to go (two-phase GOAWAY, which
loses no stream). A gateway whose new connection lands here again is asked again at most every 2 s.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum

GAP_SECONDS = 2.0
"""One gateway connection, with those that replaced it, is sent away at most this often."""
_FORGET_SECONDS = 60.0


class Farewells:
    """Who was sent away when. Times are seconds of one monotonic clock."""

    def __init__(self, gap_seconds: float = GAP_SECONDS) -> None:
        self._gap = gap_seconds
        self._first_stray: dict[Hashable, float] = {}
        self._said: dict[Hashable, float] = {}
        self._last_by_host: dict[str, float] = {}

    def stray(self, connection: Hashable, host: str, now: float, due: float) -> bool:
        """A connection brought a stream of a lost group; whether to send it away now.

        Args:
            host: the peer's address without its port.
            due: when routes have had their time; nobody is sent away before.
        """
        first = self._first_stray.setdefault(connection, now)
        if now < due:
            return False
        said = self._said.get(connection)
        if said is not None:
            allowed = now - said >= self._gap
        else:
            # A connection that came just after another of the same gateway was sent away is most
            # likely its replacement: it waits its turn. One that was here before does not.
            last = self._last_by_host.get(host, -math.inf)
            allowed = first <= last or now - last >= self._gap
        if allowed:
            self._said[connection] = now
            self._last_by_host[host] = now
        return allowed

    def first_stray(self, connection: Hashable, now: float) -> float:
        """When this connection brought its first stray: `now`, if it brings it now."""
        return self._first_stray.setdefault(connection, now)

    def prune(self, now: float) -> None:
        """Forget connections and gateways that have not mattered for a minute."""
        edge = now - _FORGET_SECONDS
        for connection, first in list(self._first_stray.items()):
            if max(first, self._said.get(connection, first)) < edge:
                del self._first_stray[connection]
                self._said.pop(connection, None)
        for host, last in list(self._last_by_host.items()):
            if last < edge:
                del self._last_by_host[host]


class Next(StrEnum):
    """What a stopping worker does next."""

    HAND_OVER = "hand_over"
    """Serve on: groups are still to be taken over by others."""

    WAIT = "wait"
    """Serve on: streams are open, or something strayed here a moment ago."""

    LEAVE = "leave"
    """Send every connection away, let open streams end, and exit."""


@dataclass(frozen=True, slots=True)
class StopFacts:
    """All that decides when a worker that was told to stop may leave. Times in seconds.

    Attributes:
        since_stop: since the worker was told to stop.
        held: groups that others must take over first: owned or opening.
        leader_away: since a leader was last connected; inf if none ever was, 0 while one is.
        peers: whether another worker lives that could take over; None if unknown.
        since_needed: since the worker last owned a group or a stream strayed to it; inf if never.
    """

    since_stop: float
    held: int
    leader_away: float
    peers: bool | None
    open_streams: int
    since_needed: float


@dataclass(frozen=True, slots=True)
class StopLimits:
    """Bounds on a stop, in seconds.

    Attributes:
        leader_gap: how long a leader may be away before it counts as gone, not as replaced.
        hand_over: how long others may take to take over while somebody leads.
        streams: how long open streams, or a leader, are waited for from the beginning of the stop.
        quiet: how long after the last stray a route may still lead here.
    """

    leader_gap: float
    hand_over: float
    streams: float
    quiet: float


def _with_groups(facts: StopFacts, limits: StopLimits) -> Next:
    """What to do while groups are still to be taken over.

    Where others live but nobody leads, gateways have nowhere else to go until somebody does: to
    serve on costs nothing, to leave costs every request of these groups.
    """
    leaderless = facts.leader_away > limits.leader_gap
    if facts.peers is False or (leaderless and facts.peers is None):
        return Next.LEAVE
    longest = limits.streams if leaderless else limits.hand_over
    return Next.LEAVE if facts.since_stop > longest else Next.HAND_OVER


def next_step(facts: StopFacts, limits: StopLimits) -> Next:
    """What to do now; `LEAVE` is final."""
    if facts.held:
        return _with_groups(facts, limits)
    if facts.since_needed < limits.quiet:
        return Next.WAIT
    if facts.open_streams and facts.since_stop < limits.streams:
        return Next.WAIT
    return Next.LEAVE

"""Workers that come and die again and again are given nothing for a while. Pure; time is handed in.

A crash-looping worker joins in every life of it, is given its share, and takes that share's streams
with it when it dies a few seconds later. The first short life is forgiven. After the second one the
next life has to last for 10 s before it is given anything, after the third for 20 s, and so on, at
most five minutes. Nobody is on probation who owns something (nobody else could take it), who is the
only one that could be given groups, or who has lived for ten minutes; and a worker that was told to
go, or whose pod was taken away, has not failed.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from coordinator.planning import Peer
from coordinator.verdicts import Death
from fleet.model import ShardMap, Signal

log = logging.getLogger(__name__)

SHORT_LIFE_SECONDS = 60.0
"""A death within this time of joining counts."""

FIRST_SECONDS = 10.0
"""Probation after the second short life; doubled by each further one. As a kubelet's back-off."""

MOST_SECONDS = 300.0

FORGET_SECONDS = 600.0
"""Deaths are forgotten when the last of them was this long ago."""

MAX_REMEMBERED = 1024
"""Workers remembered; the longest untouched is forgotten first."""


@dataclass(frozen=True, slots=True)
class _Record:
    """How often a worker died young, and when last."""

    deaths: int
    last: float


class Probation:
    """What one term of leadership has seen of its workers' lives."""

    def __init__(self) -> None:
        self._born: dict[str, tuple[str, float]] = {}
        self._records: dict[str, _Record] = {}

    def died(self, deaths: Iterable[Death], now: float) -> None:
        """Take in who died since the last look, at monotonic `now`."""
        for death in deaths:
            incarnation, born = self._born.pop(death.member.id, ("", -FORGET_SECONDS))
            failed = death.signal is not Signal.POD_GONE and not death.member.draining
            young = incarnation == death.member.incarnation and now - born < SHORT_LIFE_SECONDS
            if failed and young:
                self._failed(death.member.id, now)

    def _failed(self, worker: str, now: float) -> None:
        before = self._records.pop(worker, _Record(0, now))
        deaths = 1 if now - before.last >= FORGET_SECONDS else before.deaths + 1
        self._records[worker] = _Record(deaths, now)
        if len(self._records) > MAX_REMEMBERED:
            del self._records[next(iter(self._records))]
        seconds = _probation(deaths)
        if seconds:
            log.warning(
                "worker on probation",
                extra={"worker": worker, "short_lives": deaths, "seconds": seconds},
            )

    def screen(
        self, peers: Mapping[str, Peer], previous: ShardMap | None, now: float
    ) -> Mapping[str, Peer]:
        """`peers`, of which those on probation accept nothing."""
        for peer in peers.values():
            if self._born.get(peer.id, ("", 0.0))[0] != peer.incarnation:
                self._born[peer.id] = (peer.incarnation, now)
        tried = {worker for worker in peers if self._on_probation(worker, now)}
        if not tried:
            return peers
        if previous is not None:
            tried -= {owner for p in previous.placements.values() for owner in p.owners}
        if not any(peer.accepts for worker, peer in peers.items() if worker not in tried):
            return peers
        return {
            worker: replace(peer, accepts=peer.accepts and worker not in tried)
            for worker, peer in peers.items()
        }

    def _on_probation(self, worker: str, now: float) -> bool:
        record = self._records.get(worker)
        if record is None:
            return False
        _, born = self._born.get(worker, ("", now))
        if now - born >= FORGET_SECONDS or now - record.last >= FORGET_SECONDS:
            return False
        return now - born < _probation(record.deaths)


def _probation(deaths: int) -> float:
    """Seconds that the next life has to last."""
    if deaths < 2:
        return 0.0
    return min(FIRST_SECONDS * 2.0 ** min(deaths - 2, 10), MOST_SECONDS)

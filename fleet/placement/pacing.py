"""When placement may move things: the cool-down of balance, and what counts as a roll-out.

Pure but for what they remember; monotonic seconds are handed in.
"""

from collections.abc import Collection
from dataclasses import dataclass

from fleet.settings.model import PlacementSettings


@dataclass(frozen=True, slots=True)
class Running:
    """A live worker as a roll-out sees it.

    Attributes:
        started: wall-clock seconds of its own clock.
    """

    id: str
    incarnation: str
    version: str
    started: float
    accepts: bool


LONGEST = 12
"""A mix of versions is no roll-out any more after this many `rollout_seconds` (an hour), however
many workers come and go: two Deployments side by side, scaled all the time, are balanced too."""


class BalancePace:
    """Moves for balance alone: a share of all groups in a round, and a rest after each round."""

    def __init__(self, settings: PlacementSettings) -> None:
        self._share = settings.balance_share
        self._seconds = settings.balance_seconds
        self._moved: float | None = None

    def budget(self, groups: int, now: float) -> int:
        """How many of `groups` may move at this moment."""
        if self._moved is not None and now - self._moved < self._seconds:
            return 0
        return max(1, int(self._share * groups))

    def moved(self, now: float) -> None:
        """A round of moves began."""
        self._moved = now


class RolloutWatch:
    """Whether a release is being rolled out, and which one.

    Workers of two versions are a roll-out until none of them came, went or began to drain for
    `rollout_seconds`, and for at most `LONGEST` times as long. Its release is that of the accepting
    worker that started last: so it is with a roll-back too, whose version is the lower one. An old
    worker that restarts in between is taken for the release until the next new one starts: some
    groups then move once more.
    """

    def __init__(self, settings: PlacementSettings) -> None:
        self._seconds = settings.rollout_seconds
        self._seen: frozenset[tuple[str, str, bool]] = frozenset()
        self._changed: float | None = None
        self._versions: frozenset[str] = frozenset()
        self._mixed = 0.0

    def release(self, workers: Collection[Running], now: float) -> str | None:
        """The version that is being rolled out; None if none is."""
        seen = frozenset((worker.id, worker.incarnation, worker.accepts) for worker in workers)
        if seen != self._seen or self._changed is None:
            self._seen, self._changed = seen, now
        versions = frozenset(worker.version for worker in workers)
        if versions != self._versions:
            self._versions, self._mixed = versions, now
        accepting = [worker for worker in workers if worker.accepts]
        still = now - self._changed >= self._seconds
        if len(versions) < 2 or not accepting or still:
            return None
        if now - self._mixed >= LONGEST * self._seconds:
            return None
        return max(accepting, key=lambda worker: (worker.started, worker.id)).version

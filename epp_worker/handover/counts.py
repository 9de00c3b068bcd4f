"""What the state streams have done so far, for the metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class StreamCounts:
    """Counters of both directions.

    Attributes:
        sent_bytes, received_bytes: messages of state.
        snapshots_sent: of groups, begun.
        snapshots_lagged: begun again since their follower did not keep up with what changed.
        snapshots_applied: of groups, received to their end.
        unreadable: pieces that a slot could not read.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    snapshots_sent: int = 0
    snapshots_lagged: int = 0
    snapshots_applied: int = 0
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """All numbers of one moment.

    Attributes:
        lag_seconds: age of the oldest change that a follower has not been sent yet.
        followers: workers that follow this one.
        following: workers that this one follows.
    """

    lag_seconds: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    snapshots_sent: int = 0
    snapshots_lagged: int = 0
    snapshots_applied: int = 0
    unreadable: int = 0
    followers: int = 0
    following: int = 0

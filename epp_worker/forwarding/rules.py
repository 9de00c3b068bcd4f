"""Whom a stray is forwarded to, and when the leader is asked first. Pure.

An answer is as good as new for a second. A group whose streams go on coming is asked about again
while they are forwarded; one that was silent for long is asked about first, as long as a leader is
there that answers. Without one, what was said last is all that there is.
"""

from dataclasses import dataclass

FRESH_SECONDS = 1.0
"""No more is asked about a group for so long after an answer."""
STALE_SECONDS = 3.0
"""An older answer is not acted on before the leader was asked."""
ANSWER_SECONDS = 0.5
"""A leader that has not answered for this long is not waited for."""
MAX_TRIES = 2
"""Owners that one stream is given to, one after the other."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a group's owner.

    Attributes:
        owner: None = nobody.
        age: seconds since it was said.
    """

    owner: str | None
    age: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a stream that is to be forwarded.

    Attributes:
        owner: whom to give it to now; None = it waits.
        ask: have the leader asked.
    """

    owner: str | None
    ask: bool


def decide(known: Known | None, asked: float | None, *, leader: bool) -> Decision:
    """What to do now.

    Args:
        asked: seconds since the leader was asked about the group, without an answer so far.
        leader: whether one is connected.
    """
    waits = asked is not None and asked < ANSWER_SECONDS
    if not leader or known is None:
        return Decision(None if known is None else known.owner, leader and not waits)
    if known.age < FRESH_SECONDS:
        return Decision(known.owner, ask=False)
    usable = known.age < STALE_SECONDS or (asked is not None and not waits)
    return Decision(known.owner if usable else None, ask=not waits)


@dataclass(frozen=True, slots=True)
class Past:
    """What a stream has behind it.

    Attributes:
        since: loop time at which it came.
        tried: owners that it was given to in vain, as (id, incarnation).
        onward: whether it may be forwarded at all; a stream that was forwarded here may not.
    """

    since: float
    tried: tuple[tuple[str, str], ...] = ()
    onward: bool = True

    def may_try(self, owner: str, incarnation: str) -> bool:
        """Whether this owner may be tried for the stream."""
        mark = (owner, incarnation)
        return self.onward and len(self.tried) < MAX_TRIES and mark not in self.tried

    def after(self, owner: str, incarnation: str) -> "Past":
        """The same with one more owner that failed it."""
        return Past(self.since, (*self.tried, (owner, incarnation)), self.onward)

"""What signals say of a worker, and what membership makes of them. Facts only."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from fleet.model import Member, MemberState, Signal


class Connect(StrEnum):
    """What one TCP connection attempt showed. Only a refusal proves anything."""

    REFUSED = "refused"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"


class Answer(StrEnum):
    """What a hello is answered with; all but `JOINED` are a last word."""

    JOINED = "joined"
    DUPLICATE = "duplicate"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Judged:
    """One worker and what we think of it.

    Attributes:
        reached: it has said hello on a control stream of this term.
        signal: what fired, for a suspect or dead worker.
        why: every signal that had fired, with its age, for people.
    """

    member: Member
    state: MemberState
    signal: Signal | None
    reached: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Death:
    """A death that the last judgement found; `why` names every signal that had fired."""

    member: Member
    signal: Signal
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on every living worker, and who died since the last one."""

    living: tuple[Judged, ...]
    deaths: tuple[Death, ...]


class PodAt(NamedTuple):
    """A worker's pod: its name is the worker's id.

    Attributes:
        host: its address without a port; "" if none is known.
    """

    name: str
    host: str

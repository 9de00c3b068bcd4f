"""Whether a leader may speak to this worker. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from fleet.control.messages import LeaderHello, Verdict


class Admission(StrEnum):
    """What becomes of a control stream."""

    ADMIT = "admit"
    LOWER_EPOCH = "lower_epoch"
    OTHER_FLEET = "other_fleet"


def admit(fleet: str, seen_epoch: int, hello: LeaderHello) -> Admission:
    """Judge a leader's first message.

    A leader of the highest epoch seen is admitted even while another stream of that epoch is up:
    the newest wins, since the leader opened it because it gave the older one up.
    """
    if hello.fleet != fleet:
        return Admission.OTHER_FLEET
    if hello.epoch < seen_epoch:
        return Admission.LOWER_EPOCH
    return Admission.ADMIT


class Sentence(StrEnum):
    """What a verdict means for this incarnation."""

    REJOIN = "rejoin"
    EXIT = "exit"
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Understood:
    """A verdict as this worker takes it."""

    sentence: Sentence
    reason: str


def understand(incarnation: str, verdict: Verdict) -> Understood:
    """What `verdict` asks of the incarnation that hears it; one of another life is ignored."""
    if verdict.incarnation != incarnation:
        return Understood(Sentence.IGNORE, "it speaks of another incarnation")
    if verdict.kind == "dead":
        return Understood(Sentence.REJOIN, verdict.reason)
    if verdict.kind == "duplicate":
        return Understood(Sentence.EXIT, verdict.reason)
    return Understood(Sentence.IGNORE, f"unknown kind {verdict.kind[:40]!r}")

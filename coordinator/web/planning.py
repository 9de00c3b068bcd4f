"""`GET /api/v1/plan?remove=W` or `?workers=N`: the question read, the answer as JSON. Pure."""

from collections.abc import Mapping

import msgspec

from coordinator.web.documents import FORMAT, LeaderDocument
from coordinator.whatif import MAX_WORKERS, Question, WhatIf
from fleet.model import LeaderInfo

MAX_MOVES = 200
"""Pairs of workers that are listed, the most moved first; `moved` counts all."""


class QuestionDocument(msgspec.Struct, frozen=True):
    """One of the two is null."""

    remove: str | None
    workers: int | None


class MovesDocument(msgspec.Struct, frozen=True):
    """`source` is null for groups that nobody owned, `target` for those that nobody would."""

    source: str | None
    target: str | None
    reason: str
    groups: int


class CarriedDocument(msgspec.Struct, frozen=True):
    """`fate`: stays | leaves | joins; a load is the groups plus their streams per second."""

    id: str
    fate: str
    owned_before: int
    owned_after: int
    load_before: float
    load_after: float


class PlanDocument(msgspec.Struct, frozen=True):
    """The balances are the fullest worker's load by the mean; `loads_known` is false where a
    follower answers: all groups count alike then."""

    format: int
    epoch: int
    version: int
    question: QuestionDocument
    groups: int
    moved: int
    moves: list[MovesDocument]
    workers: list[CarriedDocument]
    balance_before: float
    balance_after: float
    loads_known: bool
    leader: LeaderDocument | None
    answered_by: str


def question_of(query: Mapping[str, str]) -> Question:
    """The question of a request.

    Raises:
        ValueError: says how to ask.
    """
    remove, workers = query.get("remove"), query.get("workers")
    if (remove is None) == (workers is None) or set(query) - {"remove", "workers"}:
        raise ValueError("ask with either remove=WORKER or workers=NUMBER")
    if workers is None:
        return Question(remove=remove)
    if not (workers.isascii() and workers.isdecimal() and 1 <= len(workers) <= 4):
        raise ValueError(f"workers={workers[:20]!r} is no number")
    if not 1 <= int(workers) <= MAX_WORKERS:
        raise ValueError(f"workers={int(workers)} is out of range; ask for 1 to {MAX_WORKERS}")
    return Question(workers=int(workers))


def plan_document(found: WhatIf, *, leader: LeaderInfo | None, answered_by: str) -> PlanDocument:
    """The whole document."""
    return PlanDocument(
        format=FORMAT,
        epoch=found.version.epoch,
        version=found.version.version,
        question=QuestionDocument(found.question.remove, found.question.workers),
        groups=found.groups,
        moved=found.moved,
        moves=[
            MovesDocument(each.source or None, each.target, each.reason.value, each.groups)
            for each in found.moves[:MAX_MOVES]
        ],
        workers=[
            CarriedDocument(
                each.worker,
                each.fate,
                each.owned_before,
                each.owned_after,
                round(each.load_before, 3),
                round(each.load_after, 3),
            )
            for each in found.workers
        ],
        balance_before=round(found.balance_before, 3),
        balance_after=round(found.balance_after, 3),
        loads_known=found.loads_known,
        leader=None if leader is None else LeaderDocument(leader.id, leader.http),
        answered_by=answered_by,
    )

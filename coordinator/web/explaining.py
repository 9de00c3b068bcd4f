"""One pool explained, as the API shows it: facts to a JSON document. Pure.

Fields that only the leader knows are null when a follower answers, and named in `unknown_here`.
"""

import msgspec

from coordinator.explain import Explained, ExplainedGroup
from coordinator.ownership import Claimed, Decision, NotOurs, Refusal
from coordinator.web.documents import FORMAT, LeaderDocument, timestamp
from fleet.model import LeaderInfo, Phase, Placement
from fleet.picking.effective import EffectiveConfig, effective_config

LEADER_KNOWS = (
    "groups.route.version",
    "groups.service.error",
    "groups.considered.load",
    "groups.considered.cap",
)


class RefusalDocument(msgspec.Struct, frozen=True):
    """`group` is null for what is about the pool itself."""

    reason: str
    message: str
    group: str | None


class ServiceDocument(msgspec.Struct, frozen=True):
    """`state`: ours | labelled | missing | handed_over | unchecked; `error` is why it could not be
    written."""

    name: str
    port: int
    state: str
    note: str | None
    error: str | None


class RouteDocument(msgspec.Struct, frozen=True):
    """`version` is the epoch.version of what was written last."""

    where: str | None
    addresses: tuple[str, ...]
    version: str | None


class PinDocument(msgspec.Struct, frozen=True):
    """`workers` meet it at present; none = it is placed as if it had no pin."""

    text: str
    workers: tuple[str, ...]


class UnwellDocument(msgspec.Struct, frozen=True):
    """A worker that the placement names and that is suspect or dead; the fields are as in
    `GET /api/v1/workers`."""

    id: str
    state: str
    signal: str | None
    why: str


class ConsideredDocument(msgspec.Struct, frozen=True):
    """A worker in the ring's order (`order`, from 1). `verdict`: what it is to the group (owner |
    gainer | standby | former), or the first rule that keeps it from that (dead | joining | draining
    | pin | quarantine | older_version | over_cap | full | sticky), or free; `why` says it for
    people. `load` and `cap` count 1 + streams per second a group."""

    worker: str
    order: int
    verdict: str
    why: str
    load: float | None
    cap: float | None


class GroupDocument(msgspec.Struct, frozen=True):
    """`role`: picker | also-serve | former. The placement's fields are as in the map's pools;
    `note` explains a phase that needs a word."""

    group: str
    role: str
    service: ServiceDocument | None
    route: RouteDocument | None
    owners: tuple[str, ...]
    standby: str | None
    phase: str
    since: str | None
    reason: str | None
    moving_to: str | None
    draining: tuple[str, ...]
    candidates: tuple[str, ...]
    pin: PinDocument | None
    unwell: tuple[UnwellDocument, ...] = ()
    note: str | None = None
    considered: tuple[ConsideredDocument, ...] = ()


class ClaimDocument(msgspec.Struct, frozen=True):
    """`state`: claimed | refused | not_ours | gone (only the map still has the pool)."""

    state: str
    why: str


class ExplainDocument(msgspec.Struct, frozen=True):
    """`GET /api/v1/pools/{ns}/{name}`."""

    format: int
    namespace: str
    name: str
    uid: str | None
    claim: ClaimDocument
    refusals: list[RefusalDocument]
    groups: list[GroupDocument]
    problems: tuple[str, ...]
    epoch: int | None
    version: int | None
    leader: LeaderDocument | None
    answered_by: str
    unknown_here: tuple[str, ...]
    picking: EffectiveConfig | None = None


def explain_document(
    explained: Explained, *, leader: LeaderInfo | None, answered_by: str
) -> ExplainDocument:
    """The whole document."""
    decision = explained.decision
    version = explained.version
    return ExplainDocument(
        format=FORMAT,
        namespace=explained.ref.namespace,
        name=explained.ref.name,
        uid=explained.uid or None,
        claim=_claim(decision),
        refusals=[] if decision is None else [_refusal(each) for each in decision.refusals],
        groups=[_group(each) for each in explained.groups],
        problems=explained.problems,
        epoch=None if version is None else version.epoch,
        version=None if version is None else version.version,
        leader=None if leader is None else LeaderDocument(leader.id, leader.http),
        answered_by=answered_by,
        unknown_here=() if explained.leader_known else LEADER_KNOWS,
        picking=None if explained.picking is None else effective_config(explained.picking),
    )


def _claim(decision: Decision | None) -> ClaimDocument:
    if decision is None:
        return ClaimDocument("gone", "the pool exists no more; it is being withdrawn")
    if isinstance(decision, Claimed):
        return ClaimDocument("claimed", decision.why)
    return ClaimDocument("not_ours" if isinstance(decision, NotOurs) else "refused", decision.why)


def _refusal(refusal: Refusal) -> RefusalDocument:
    group = None if refusal.group is None else str(refusal.group)
    return RefusalDocument(refusal.reason.value, refusal.message, group)


def _group(each: ExplainedGroup) -> GroupDocument:
    placement = each.placement
    return GroupDocument(
        group=str(each.group),
        role="former" if each.served is None else each.served.role.value,
        service=_service(each),
        route=_route(each),
        owners=() if placement is None else placement.owners,
        standby=None if placement is None else placement.standby,
        phase="unowned" if placement is None else placement.phase.value,
        since=None if placement is None else timestamp(placement.since),
        reason=None if placement is None else placement.reason.value,
        moving_to=None if placement is None else placement.moving_to,
        draining=() if placement is None else placement.draining,
        candidates=each.candidates,
        pin=None if each.pin is None else PinDocument(each.pin.text, each.pin.workers),
        note=_note(placement),
        unwell=tuple(
            UnwellDocument(
                status.member.id,
                status.state.value,
                None if status.signal is None else status.signal.value,
                status.why,
            )
            for status in each.unwell
        ),
        considered=tuple(
            ConsideredDocument(
                one.worker,
                one.order,
                one.verdict.value,
                one.why,
                None if one.load is None else round(one.load, 3),
                None if one.cap is None else round(one.cap, 3),
            )
            for one in each.considered
        ),
    )


def _note(placement: Placement | None) -> str | None:
    if placement is None or placement.phase is not Phase.QUARANTINED:
        return None
    held = "it stays on one worker, without a stand-by" if placement.owners else "nobody has it"
    return (
        f"workers died soon after they were given it, so {held}; released after a time without "
        "such a death, or when the pool is changed"
    )


def _service(each: ExplainedGroup) -> ServiceDocument | None:
    if each.served is None:
        return None
    error = None if each.failure is None else each.failure.message
    return ServiceDocument(
        name=each.group.service,
        port=each.group.port,
        state=each.served.state.value,
        note=each.served.note or None,
        error=error,
    )


def _route(each: ExplainedGroup) -> RouteDocument | None:
    route = each.route
    if route is None:
        return None
    version = None if route.version is None else str(route.version)
    return RouteDocument(route.where or None, route.addresses, version)

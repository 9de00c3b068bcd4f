"""Why each worker has a group, or has it not: the placement's own rules, said of one group.

Pure, and about what is, not about how it came to be: of a pool that was placed an hour ago it says
whether its candidates could take it now. The rules themselves are in `plan` and `seating`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fleet.model import GroupKey, Reason
from fleet.model.pins import Pin
from fleet.placement.facts import Candidate
from fleet.placement.ledger import fair_level
from fleet.ring import Ring

MOST = 10
"""Candidates in the ring's order of which something is said; those that the placement names come on
top."""


class Verdict(StrEnum):
    """What a worker is to a group, or the first rule that keeps it from being it."""

    OWNER = "owner"
    GAINER = "gainer"
    STANDBY = "standby"
    FORMER = "former"
    DEAD = "dead"
    JOINING = "joining"
    DRAINING = "draining"
    PIN = "pin"
    QUARANTINE = "quarantine"
    OLDER_VERSION = "older_version"
    OVER_CAP = "over_cap"
    FULL = "full"
    STICKY = "sticky"
    FREE = "free"


@dataclass(frozen=True, slots=True)
class Contender:
    """A worker on the ring.

    Attributes:
        dead: what it was found dead by; "" = it lives.
        joined: the map names it.
        load: of all its groups; None = not known here.
        tainted: it owns a quarantined group.
    """

    candidate: Candidate
    dead: str = ""
    joined: bool = True
    load: float | None = None
    tainted: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """The group and where it is.

    Attributes:
        load: its own; None = not known here.
        pin: one that somebody meets, or None.
        rolling: a release is being rolled out, and some workers are `preferred`.
        reason: why the owner has it.
    """

    group: GroupKey
    load: float | None
    owner: str | None
    gainer: str | None = None
    standby: str | None = None
    former: tuple[str, ...] = ()
    reason: Reason = Reason.INITIAL
    pin: Pin | None = None
    quarantined: bool = False
    rolling: bool = False


@dataclass(frozen=True, slots=True)
class Considered:
    """One worker.

    Attributes:
        order: its place in the ring's order for the group, from 1.
        why: for people.
        load, cap: what it carries and may carry (1 + streams per second a group); None = not
            known here.
    """

    worker: str
    order: int
    verdict: Verdict
    why: str
    load: float | None
    cap: float | None


_TAKEN = {
    Reason.INITIAL: "given it at its first placement",
    Reason.OWNER_DEAD: "took it over when its owner died",
    Reason.DRAIN: "took it over from a worker that drained",
    Reason.JOIN: "took it as part of its share when it joined",
    Reason.BALANCE: "took it from a fuller worker",
    Reason.ROLLOUT: "took it over in a roll-out, as one of the new version",
    Reason.PINNED: "took it because it meets the pin",
    Reason.KEPT: "has had it",
}


def loads_by_worker(
    placed: Mapping[GroupKey, str | None], rates: Mapping[GroupKey, float]
) -> dict[str, float]:
    """What each worker carries: 1 + streams per second of each group that is, or is about to be,
    its own."""
    carried: dict[str, float] = {}
    for group, worker in placed.items():
        if worker is not None:
            carried[worker] = carried.get(worker, 0.0) + 1.0 + rates.get(group, 0.0)
    return carried


class Rules:
    """What holds for every worker at this moment.

    Args:
        cap: the load that a worker of weight 1 may carry; None = not known here.
        loads: of all groups; None = not known here.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        *,
        cap: float | None,
        loads: Collection[float] | None,
    ) -> None:
        self._by_id = {each.candidate.id: each for each in contenders}
        accepting = [each.candidate.weight for each in contenders if _accepts(each)]
        self.cap = cap if loads and accepting else None
        self._full = None
        if self.cap is not None and loads is not None:
            self._full = (fair_level(loads, accepting) + self.cap) / 2
        self._others = any(_accepts(each) and not each.tainted for each in contenders)

    def consider(self, asked: Asked, ring: Ring) -> tuple[Considered, ...]:
        """The workers in the ring's order, the first `MOST` and whoever the placement names.

        Args:
            ring: of all contenders, dead and draining ones too: they leave gaps, not another order.
        """
        named = {asked.owner, asked.gainer, asked.standby, *asked.former}
        return tuple(
            self._one(asked, self._by_id[name], order)
            for order, name in enumerate(ring.walk(asked.group), start=1)
            if name in self._by_id and (order <= MOST or name in named)
        )

    def _one(self, asked: Asked, contender: Contender, order: int) -> Considered:
        verdict, why = self._judge(asked, contender)
        weight = contender.candidate.weight
        return Considered(
            worker=contender.candidate.id,
            order=order,
            verdict=verdict,
            why=why,
            load=contender.load,
            cap=None if self.cap is None else self.cap * weight,
        )

    def _judge(self, asked: Asked, contender: Contender) -> tuple[Verdict, str]:
        name = contender.candidate.id
        if contender.dead:
            return Verdict.DEAD, f"dead: {contender.dead}"
        if name == asked.owner:
            return Verdict.OWNER, self._of_owner(asked, contender)
        if name == asked.gainer:
            return Verdict.GAINER, "opens it, and gets it as soon as it is ready"
        if name == asked.standby:
            return Verdict.STANDBY, self._of_standby(asked, contender)
        if name in asked.former:
            return Verdict.FORMER, "handed it over, and keeps it until no stream strays there"
        return self._barred(asked, contender) or self._passed(asked, contender)

    def _barred(self, asked: Asked, contender: Contender) -> tuple[Verdict, str] | None:
        """The rule by which it may not be given the group at all."""
        worker = contender.candidate
        if not contender.joined:
            return Verdict.JOINING, "has just come: no map names it yet"
        if not worker.accepts:
            return Verdict.DRAINING, "drains: it is given nothing while others live"
        pin = asked.pin
        if pin is not None and not pin.meets(worker=worker.id, zone=worker.zone, node=worker.node):
            return Verdict.PIN, f"does not meet the pin {pin.text}"
        if asked.quarantined:
            return Verdict.QUARANTINE, "the pool is quarantined: it stays on one worker"
        if contender.tainted and self._others:
            why = "owns a quarantined pool: it is given nothing else while others live"
            return Verdict.QUARANTINE, why
        if asked.rolling and not worker.preferred:
            why = "not of the version that is rolled out: what moves goes to that one first"
            return Verdict.OLDER_VERSION, why
        return None

    def _passed(self, asked: Asked, contender: Contender) -> tuple[Verdict, str]:
        """It may have the group, but has it not."""
        cap, load, own = self.cap, contender.load, asked.load
        apart = self._not_standby(asked, contender)
        if cap is not None and load is not None and own is not None and self._full is not None:
            weight = contender.candidate.weight
            if load + own > cap * weight:
                why = (
                    f"would carry {load + own:.1f} with it, over its cap of {cap * weight:.1f}: "
                    "only where nobody has room"
                )
                return Verdict.OVER_CAP, why + apart
            if load + own > self._full * weight:
                why = (
                    f"would carry {load + own:.1f} with it; the ring's order holds up to "
                    f"{self._full * weight:.1f}, the emptiest worker comes before it then"
                )
                return Verdict.FULL, why + apart
        if asked.owner is not None:
            room = "has room, but a" if cap is not None else "could take it, but a"
            return Verdict.STICKY, f"{room} pool stays with a worker that is well{apart}"
        return Verdict.FREE, "could take it" + apart

    def _of_owner(self, asked: Asked, contender: Contender) -> str:
        if not contender.candidate.accepts:
            return "owns it, and hands it over: it drains"
        why = _TAKEN[asked.reason]
        if asked.gainer is not None:
            return f"{why}; serves it until the move is done"
        if asked.quarantined:
            return f"{why}; quarantined: it stays there, without a stand-by"
        cap, load = self.cap, contender.load
        if cap is not None and load is not None and load > cap * contender.candidate.weight:
            return f"{why}; keeps it for now, but is over its cap: pools move away in rounds"
        return f"{why}; keeps it while it lives, does not drain and is under its cap"

    def _of_standby(self, asked: Asked, contender: Contender) -> str:
        owner = self._by_id.get(asked.owner or "")
        if owner is None:
            return "is kept warm"
        where = _where(owner.candidate, contender.candidate)
        alone = "" if contender.candidate.accepts else "; it drains, but nobody else is left"
        said = f"is kept warm to take over from {owner.candidate.id}"
        return f"{said}{where and f'; {where}'}{alone}"

    def _not_standby(self, asked: Asked, contender: Contender) -> str:
        """Where the spread over zones and nodes is why it does not stand by either."""
        owner, standby = self._by_id.get(asked.owner or ""), self._by_id.get(asked.standby or "")
        if owner is None or standby is None:
            return ""
        apart = _apart(owner.candidate, contender.candidate)
        if apart >= _apart(owner.candidate, standby.candidate):
            return ""
        return f"; no stand-by: {_where(owner.candidate, contender.candidate)} as the owner"


def _accepts(contender: Contender) -> bool:
    return not contender.dead and contender.joined and contender.candidate.accepts


def _apart(owner: Candidate, other: Candidate) -> int:
    """2 = in another zone, 1 = on another node, 0 = neither, as far as is known."""
    if owner.zone and other.zone and owner.zone != other.zone:
        return 2
    return int(bool(owner.node and other.node and owner.node != other.node))


def _where(owner: Candidate, other: Candidate) -> str:
    """How far `other` is from `owner`; "" where zones and nodes are not known."""
    apart = _apart(owner, other)
    if apart == 2:
        return "another zone"
    same_zone = bool(owner.zone and other.zone)
    if apart == 1:
        return "another node, the same zone" if same_zone else "another node"
    if owner.node and other.node:
        return "the same node"
    return "the same zone" if same_zone else ""

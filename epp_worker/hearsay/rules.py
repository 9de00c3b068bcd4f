"""From the answers of peers to a share, and to where everything else is. Pure.

Every share names the owner of each of its groups, so a group of ours is known to its stand-by, and
to whoever drains it. Of two answers about a group the one of the higher epoch.version counts. A
group becomes ours only by an answer of the highest epoch among them: an older leader's word may
have been overruled in a share that nobody who answered has.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fleet.control.messages import OwnerOf, WorkerPeer
from fleet.control.peer_messages import Holds
from fleet.model import EpochVersion, GroupKey, Hold, Share, ShareEntry
from fleet.model.identity import NONE


@dataclass(frozen=True, slots=True)
class Heard:
    """One answer, and where it came from.

    Attributes:
        address: `host:port` of the peer's internal port.
    """

    address: str
    holds: Holds


@dataclass(frozen=True, slots=True)
class Adoption:
    """What a worker takes from the answers.

    Attributes:
        share: of this worker; None if no peer was ever told anything.
        owners: of the groups that are not ours.
        peers: who answered.
    """

    share: Share | None
    owners: tuple[OwnerOf, ...]
    peers: Mapping[str, WorkerPeer]


@dataclass(frozen=True, slots=True)
class Asker:
    """The worker that asks.

    Attributes:
        seen_epoch: highest epoch that it has seen anywhere.
        holds: what it has from earlier answers: who answers later may know less.
    """

    fleet: str
    worker: str
    incarnation: str
    seen_epoch: int
    holds: Holds


def adopt(asker: Asker, answers: Iterable[Heard]) -> Adoption:
    """What follows from the answers. Those of other fleets and from itself do not count."""
    heard = [
        one
        for one in answers
        if one.holds.fleet == asker.fleet and one.holds.worker != asker.worker
    ]
    peers = {
        one.holds.worker: WorkerPeer(one.address, one.holds.incarnation)
        for one in sorted(heard, key=lambda one: one.holds.version)
    }
    told = [
        holds
        for holds in (asker.holds, *(one.holds for one in heard))
        if holds.version > NONE and holds.version.epoch >= asker.seen_epoch
    ]
    if not told:
        return Adoption(None, (), peers)
    highest = max(holds.version for holds in told)
    latest = _latest(told)
    ours = tuple(
        ShareEntry(group, Hold.OWNER, entry.pools, asker.worker)
        for group, (version, entry) in sorted(latest.items())
        if entry.owner == asker.worker and version.epoch == highest.epoch
    )
    owners = tuple(
        OwnerOf(group, entry.owner)
        for group, (_, entry) in latest.items()
        if entry.owner not in (None, asker.worker)
    )
    share = Share(asker.fleet, asker.worker, asker.incarnation, highest, ours)
    return Adoption(share, owners, peers)


def _latest(told: Iterable[Holds]) -> dict[GroupKey, tuple[EpochVersion, ShareEntry]]:
    """The entry that counts for each group: the newest, and of equals the owner's own."""
    latest: dict[GroupKey, tuple[EpochVersion, ShareEntry]] = {}
    for holds in sorted(told, key=lambda holds: (holds.version, holds.worker)):
        for entry in holds.entries:
            known = latest.get(entry.group)
            if known is None or known[0] < holds.version or entry.hold is Hold.OWNER:
                latest[entry.group] = (holds.version, entry)
    return latest

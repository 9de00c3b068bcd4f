"""A worker among the others, put together: streams of groups that are not held here go to their
owners, and a worker that nobody else tells anything asks its peers.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from epp_worker.control.port import PeerService
from epp_worker.control.questions import QuestionBounds, QuestionService
from epp_worker.endpoints import endpoints_service
from epp_worker.forwarding.budget import Bytes
from epp_worker.forwarding.calls import Calls
from epp_worker.forwarding.forwarder import Forwarder
from epp_worker.forwarding.service import ForwardService
from epp_worker.hearsay.asking import Hearsay
from epp_worker.hearsay.rules import Adoption, Asker
from epp_worker.hearsay.seeds import Seeds
from epp_worker.holdings import Holdings
from fleet.certificates import Role
from fleet.control.peer_messages import HOLDS, AskHolds, Holds
from fleet.model import GroupKey, Pod, PoolRef
from fleet.telemetry import RateLimited

if TYPE_CHECKING:
    from epp_worker.worker import Worker

HOLDS_BOUNDS = QuestionBounds(seconds=5.0, at_once=128)
"""An answer is 2 MB for 10,000 groups. What asks at once leaves calls for the leader."""


def forward_streams(worker: "Worker", max_bytes: int, limited: RateLimited) -> ForwardService:
    """Have streams passed on to owners; returns what takes those of others.

    Args:
        max_bytes: that all forwarded streams may hold together.
    """
    ext_proc, control, holdings = worker.ext_proc, worker.control, worker.holdings

    def named(group: GroupKey) -> str | None:
        held = holdings.get(group)
        return None if held is None or held.owner == worker.id else held.owner

    forwarder = Forwarder(
        worker.whereabouts,
        Calls(worker.peers),
        worker.gate,
        Bytes(max_bytes),
        worker.supervisor.spawn,
        named=named,
        ask=control.notify,
        leader=lambda: control.leader() is not None,
        look_again=ext_proc.look_again,
    )
    ext_proc.forward_by(forwarder)
    holdings.on_gone(worker.whereabouts.remember)
    worker.whereabouts.on_learned(ext_proc.look_again)
    worker.peers.on_change(ext_proc.look_again)
    return ForwardService(ext_proc.from_peer, worker.counters, limited, worker.certificates)


def questions(
    worker: "Worker", unready: Callable[[PoolRef], Sequence[Pod]], limited: RateLimited
) -> list[PeerService]:
    """What answers peers that ask what this worker holds, and coordinators that ask for endpoints.

    Args:
        unready: the pods of a pool that are no endpoints now.
    """

    fleet = worker.settings.fleet

    def holds(_: AskHolds) -> Holds:
        return holds_of(fleet, worker.id, worker.holdings)

    return [
        QuestionService(
            HOLDS,
            holds,
            HOLDS_BOUNDS,
            fleet=fleet,
            of=Role.WORKER,
            limited=limited,
            certificates=worker.certificates,
        ),
        endpoints_service(worker, unready, limited),
    ]


def holds_of(fleet: str, worker: str, holdings: Holdings) -> Holds:
    """What a worker says to peers that ask."""
    return Holds(fleet, worker, holdings.incarnation, holdings.applied, holdings.named())


def listen_to_peers(worker: "Worker", seeds: Seeds) -> Hearsay:
    """What asks the others while nobody else tells this worker what to hold."""
    holdings = worker.holdings

    def asker() -> Asker:
        fleet, seen = worker.settings.fleet, holdings.seen.epoch
        holds = holds_of(fleet, worker.id, holdings)
        return Asker(fleet, worker.id, holdings.incarnation, seen, holds)

    def told() -> bool:
        return holdings.told and not holdings.hearsay

    def led() -> bool:
        return worker.control.leader() is not None

    def heard(adoption: Adoption) -> None:
        worker.peers.introduce({**worker.peers.all(), **adoption.peers})
        worker.whereabouts.learn(adoption.owners)
        if adoption.share is not None:
            worker.apply(adoption.share, hearsay=True)

    return Hearsay(seeds, worker.peers, asker=asker, told=told, led=led, heard=heard)

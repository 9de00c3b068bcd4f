"""What the control stream says of other workers, and what is asked there about them."""

from collections.abc import Mapping

from epp_worker.peers import Peers
from epp_worker.whereabouts import Whereabouts
from fleet.control.messages import Owners, WorkerPeer
from fleet.model import GroupKey


class Neighbours:
    """Hands it on to whoever keeps it."""

    def __init__(self, peers: Peers, whereabouts: Whereabouts) -> None:
        self._peers = peers
        self._whereabouts = whereabouts

    def introduce(self, peers: Mapping[str, WorkerPeer]) -> None:
        """Every living worker, and where its internal port is."""
        self._peers.introduce(peers)

    def asking(self) -> tuple[GroupKey, ...]:
        """Take the groups whose owner the leader is to be asked for; most often none."""
        return self._whereabouts.asking()

    def learn(self, owners: Owners) -> None:
        """Who owns groups that were asked for."""
        self._whereabouts.learn(owners.owners)

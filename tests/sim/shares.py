"""Of shares: what a worker applies is all that its leader meant, by whatever parts it was told.

A leader's whole shares are noted when they are handed to its links; a worker's when it applies one
that came over a stream or from the store.
"""

from collections import OrderedDict
from collections.abc import Mapping

from fleet.model import EpochVersion, Share
from tests.sim.tape import Tape

KEPT = 512
"""Shares that are remembered: a worker applies none that is much older than the newest."""


class ShareRules:
    """The part of I2 that is about shares."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._meant: OrderedDict[tuple[str, str, EpochVersion], Share] = OrderedDict()

    def assigned(self, shares: Mapping[str, Share]) -> None:
        """A leader hands these to its links."""
        for share in shares.values():
            self._meant.setdefault((share.worker, share.incarnation, share.version), share)
        while len(self._meant) > KEPT:
            self._meant.popitem(last=False)

    def applied(self, share: Share) -> None:
        """A worker holds this from now on."""
        meant = self._meant.get((share.worker, share.incarnation, share.version))
        if meant is None:
            return  # from the store, before its leader told anybody
        wanted = {entry.group: entry for entry in meant.entries}
        found = {entry.group: entry for entry in share.entries}
        if found != wanted:
            other = sorted(
                str(group)
                for group in wanted.keys() | found.keys()
                if wanted.get(group) != found.get(group)
            )
            self._tape.break_(
                "I2", f"{share.worker} takes {share.version} for another share: {', '.join(other)}"
            )

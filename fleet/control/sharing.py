"""Shares as what has changed: shortened by the leader, put together again by the worker.

A share of 200 groups is 20 kB, and a drain changes a few of them at seventy workers: making and
reading wholes held the leader for longer than everything else of it. To a worker whose hello says
that it reads parts (`WorkerHello.deltas`) the leader tells everything once on each stream, and then
only what is other than it has told on that stream. So a part is a whole share that was made
shorter, and nothing else: what follows from it is what would follow from the whole.

Each part names the version that it builds on and what the whole comes to, its number of groups and
their sum. A worker that has another version, or comes to something else, takes nothing of it and
asks for the whole (`AskShare`).

Pure.
"""

from collections.abc import Iterable, Sequence

from xxhash import xxh3_64_intdigest

from fleet.control.messages import AssignPart
from fleet.errors import FormatError
from fleet.model import GroupKey, Share, ShareEntry

MAX_ENTRIES = 100_000
"""Groups of one worker that parts may add up to; one message is bounded by its size."""

_MASK = 2**63 - 1

_Known = dict[GroupKey, tuple[ShareEntry, int]]
"""Each entry of the last share, with its digest."""


def digest(entry: ShareEntry) -> int:
    """Of what format 1 says of a group, by its meaning: fields of a later version change nothing.

    Returns:
        64 bits of xxh3.
    """
    words = [*map(str, entry.group), entry.hold.value, entry.owner or ""]
    for pool in entry.pools:
        words += (*pool.ref, pool.uid)
    return xxh3_64_intdigest("\0".join(words).encode())


def sum_of(digests: Iterable[int]) -> int:
    """Of all entries of a share, in any order; 63 bits."""
    return sum(digests) & _MASK


class ShareShortening:
    """The leader's side of one stream."""

    def __init__(self) -> None:
        self._told: Share | None = None
        self._known: _Known = {}
        self._sum = 0

    def forget(self) -> None:
        """The worker does not have what it was told: the next share is told in whole."""
        self._told = None

    def next(self, share: Share) -> AssignPart | None:
        """What is other in `share` than was told last; None = tell all of it.

        A part that would name most of the groups anyway is told in whole.
        """
        told, self._told = self._told, share
        if told is None or told.incarnation != share.incarnation or told.version > share.version:
            self._begin(share)
            return None
        changed, gone = self._follow(told.entries, share.entries)
        if len(changed) + len(gone) > len(self._known) // 2:
            return None
        return self._part(told, share, tuple(changed), tuple(gone))

    def _follow(
        self, before: Sequence[ShareEntry], after: Sequence[ShareEntry]
    ) -> tuple[list[ShareEntry], list[GroupKey]]:
        """Groups that are other in `after`, and those that are not in it.

        Entries that stay are the same objects: of 200 they are passed over in 20 us.
        """
        if before is after:
            return [], []
        old, new = set(map(id, before)), set(map(id, after))
        known, total = self._known, self._sum
        changed = []
        for entry in [entry for entry in after if id(entry) not in old]:
            was = known.get(entry.group)
            now = digest(entry)
            if was is None or was[0] != entry:
                changed.append(entry)
            total += now - (0 if was is None else was[1])
            known[entry.group] = (entry, now)
        gone = []
        for entry in [entry for entry in before if id(entry) not in new]:
            if known[entry.group][0] is entry:
                total -= known.pop(entry.group)[1]
                gone.append(entry.group)
        self._sum = total & _MASK
        return changed, gone

    def _begin(self, share: Share) -> None:
        self._known = {entry.group: (entry, digest(entry)) for entry in share.entries}
        self._sum = sum_of(each[1] for each in self._known.values())

    def _part(
        self,
        told: Share,
        share: Share,
        changed: tuple[ShareEntry, ...],
        gone: tuple[GroupKey, ...],
    ) -> AssignPart:
        return AssignPart(told.version, share.version, changed, gone, len(self._known), self._sum)


class ShareMerging:
    """The worker's side of one stream.

    Args:
        most: groups that parts may add up to.
    """

    def __init__(self, most: int = MAX_ENTRIES) -> None:
        self._most = most
        self._share: Share | None = None
        self._known: _Known = {}

    def whole(self, share: Share) -> Share:
        """Take in a share that was told in whole."""
        self._share = share
        self._known = {entry.group: (entry, digest(entry)) for entry in share.entries}
        return share

    def merged(self, part: AssignPart) -> Share | None:
        """The whole share that `part` stands for; None if that cannot be known from here.

        Then the stream has told nothing until it tells a whole again.

        Raises:
            FormatError: parts of more than a worker can hold.
        """
        share, self._share = self._share, None
        if share is None or share.version != part.base or part.version < part.base:
            return None
        known = self._known
        for group in part.gone:
            if known.pop(group, None) is None:
                return None
        for entry in part.changed:
            known[entry.group] = (entry, digest(entry))
        if len(known) > self._most:
            raise FormatError(f"parts of a share add up to {len(known)} groups")
        if len(known) != part.groups or sum_of(each[1] for each in known.values()) != part.sum:
            return None
        entries = share.entries
        if part.changed or part.gone:
            entries = tuple(each[0] for each in known.values())
        self._share = Share(share.fleet, share.worker, share.incarnation, part.version, entries)
        return self._share

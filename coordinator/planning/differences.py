"""In which groups two maps differ. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fleet.model import GroupKey, Placement, ShardMap


class Differences(NamedTuple):
    """Between one map and a later one.

    Attributes:
        changed: groups of the later one that are placed otherwise before, or not at all.
        gone: groups of the earlier one alone.
    """

    changed: list[GroupKey]
    gone: list[GroupKey]


def differing(
    before: Mapping[GroupKey, Placement], after: Mapping[GroupKey, Placement]
) -> Differences:
    """Planning leaves what does not change the same object, so that is what counts.

    It also leaves the groups in their order, as long as none comes or goes: then two maps of
    10,000 are compared side by side in 0.4 ms; looking each group up takes five times as long.
    """
    if before is after:
        return Differences([], [])
    if len(before) == len(after):
        pairs = zip(before.items(), after.items(), strict=True)
        other = [(old, new) for (old, was), (new, now) in pairs if was is not now]
        # Where the placement is the same object, so is its group: all else must be in its place.
        if all(old == new for old, new in other):
            return Differences([new for _, new in other], [])
    known = before.get
    changed = [group for group, placement in after.items() if known(group) is not placement]
    return Differences(changed, [group for group in before if group not in after])


def changes_anything(
    previous: ShardMap | None, following: ShardMap, looked_at: Iterable[GroupKey]
) -> bool:
    """Whether `following` says anything else than `previous` did, but for its version within the
    epoch. Whatever was not looked at is as it was."""
    if previous is None:
        return True
    before, after = previous.placements, following.placements
    return (
        previous.version.epoch != following.version.epoch
        or previous.leader != following.leader
        or len(before) != len(after)
        or any(before.get(group) != after[group] for group in looked_at)
        or previous.incarnations != following.incarnations
        or previous.addresses != following.addresses
        or previous.dead != following.dead
    )

"""Which shares a worker applies, and the steps that follow."""

import pytest

from epp_worker.holds import Drop, Held, Open, Ruling, Standing, Turn, diff, judge, release_all
from fleet.model import EpochVersion, GroupKey, Hold, PoolId, PoolRef, Share, ShareEntry

A = GroupKey("ns", "a", 9002)
B = GroupKey("ns", "b", 9002)
C = GroupKey("ns", "c", 9002)


def pools(group: GroupKey, uid: str = "1") -> tuple[PoolId, ...]:
    return (PoolId(PoolRef(group.namespace, group.service), uid),)


def entry(group: GroupKey, hold: Hold, owner: str | None = "w", uid: str = "1") -> ShareEntry:
    return ShareEntry(group, hold, pools(group, uid), owner)


def share(
    *entries: ShareEntry,
    epoch: int = 5,
    version: int = 7,
    fleet: str = "f",
    worker: str = "w",
    incarnation: str = "i1",
) -> Share:
    return Share(fleet, worker, incarnation, EpochVersion(epoch, version), entries)


def held(hold: Hold, group: GroupKey, *, idle: bool = True, owner: str | None = "w") -> Held:
    return Held(hold, pools(group), owner, idle)


STANDING = Standing("f", "w", "i1", applied=EpochVersion(5, 6), seen_epoch=5)


@pytest.mark.parametrize(
    ("given", "ruling"),
    [
        (share(), Ruling.APPLY),
        (share(incarnation=""), Ruling.APPLY),
        (share(epoch=6, version=1), Ruling.APPLY),
        (share(version=6), Ruling.NOT_NEWER),
        (share(version=5), Ruling.NOT_NEWER),
        (share(epoch=4, version=999), Ruling.LOWER_EPOCH),
        (share(incarnation="i0"), Ruling.OTHER_INCARNATION),
        (share(worker="v"), Ruling.OTHER_WORKER),
        (share(fleet="g"), Ruling.OTHER_WORKER),
    ],
)
def test_a_share_is_applied_only_if_newer_mine_and_of_no_lower_epoch(
    given: Share, ruling: Ruling
) -> None:
    """Version above the last applied, my incarnation or none, epoch not below the highest seen."""
    assert judge(STANDING, given) is ruling


def test_an_epoch_seen_elsewhere_bars_lower_ones_that_are_newer_than_what_was_applied() -> None:
    """A leader's hello with epoch 9 alone is enough to refuse every share of epoch 8."""
    standing = Standing("f", "w", "i1", applied=EpochVersion(5, 6), seen_epoch=9)
    assert judge(standing, share(epoch=8, version=1)) is Ruling.LOWER_EPOCH
    assert judge(standing, share(epoch=9, version=1)) is Ruling.APPLY


def test_gains_come_before_turns_and_drops() -> None:
    """A new group is opened first, whatever the order of the share."""
    current = {A: held(Hold.OWNER, A), C: held(Hold.STANDBY, C)}
    steps = diff(current, share(entry(A, Hold.DRAINING, "v"), entry(B, Hold.OWNER)))
    assert steps == (Open(entry(B, Hold.OWNER)), Turn(entry(A, Hold.DRAINING, "v")), Drop(C))


def test_the_same_share_again_is_no_step() -> None:
    """What is held already is left alone."""
    assert diff({A: held(Hold.OWNER, A)}, share(entry(A, Hold.OWNER))) == ()


def test_another_uid_or_owner_is_a_turn() -> None:
    """A re-created pool, and a group that got another owner, are changes of the same hold."""
    new_uid = entry(A, Hold.OWNER, uid="2")
    new_owner = entry(B, Hold.STANDBY, "v")
    current = {A: held(Hold.OWNER, A), B: held(Hold.STANDBY, B)}
    assert diff(current, share(new_uid, new_owner)) == (Turn(new_uid), Turn(new_owner))


def test_a_group_that_is_named_no_more_drains_while_anything_strays_to_it() -> None:
    """A share never drops a group under running traffic; a quiet one goes at once."""
    current = {
        A: held(Hold.OWNER, A, idle=False),
        B: held(Hold.DRAINING, B, idle=False),
        C: held(Hold.DRAINING, C),
    }
    assert diff(current, share()) == (Turn(entry(A, Hold.DRAINING, None)), Drop(C))


def test_a_dead_incarnation_owns_nothing_and_still_serves_strays() -> None:
    """Everything that is not draining yet starts to drain; nothing is dropped."""
    current = {A: held(Hold.OWNER, A), B: held(Hold.DRAINING, B)}
    assert release_all(current) == (Turn(entry(A, Hold.DRAINING, None)),)

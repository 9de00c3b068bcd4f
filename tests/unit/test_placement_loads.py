"""How busy a group is while it changes hands."""

from fleet.model import GroupKey
from fleet.placement.loads import LEARNING_SECONDS, GroupLoads

A = GroupKey("ns", "a", 1)


def test_the_first_owner_is_believed() -> None:
    """Whatever it says, up and down."""
    loads = GroupLoads()
    for rate in (5.0, 80.0, 2.0):
        loads.reported(A, "w0", rate, 10.0)
        assert loads.rates == {A: rate}


def test_a_group_that_moves_does_not_weigh_nothing() -> None:
    """The new owner counts from zero: its predecessor's 40 stand until it has counted for 30 s,
    unless it has already counted more."""
    loads = GroupLoads()
    loads.reported(A, "w0", 40.0, 0.0)
    loads.reported(A, "w1", 0.0, 10.0)
    assert loads.rates == {A: 40.0}
    loads.reported(A, "w1", 55.0, 20.0)
    assert loads.rates == {A: 55.0}
    loads.reported(A, "w1", 35.0, 10.0 + LEARNING_SECONDS - 0.1)
    assert loads.rates == {A: 55.0}
    loads.reported(A, "w1", 35.0, 10.0 + LEARNING_SECONDS)
    assert loads.rates == {A: 35.0}


def test_groups_that_are_gone_are_forgotten() -> None:
    """With who owned them: a pool of the same name begins anew."""
    loads = GroupLoads()
    loads.reported(A, "w0", 40.0, 0.0)
    loads.keep(())
    assert loads.rates == {}
    loads.reported(A, "w1", 1.0, 1.0)
    assert loads.rates == {A: 1.0}

"""The bytes of all forwarded streams: bounded, and what can be done without goes first."""

from epp_worker.forwarding.budget import Bytes


class Holder:
    """Holds `size` that it can do without."""

    def __init__(self, held: Bytes, size: int) -> None:
        self.held = held
        self.size = size
        assert held.take(size)
        held.may_spare(self)

    def forget_kept(self) -> None:
        self.held.spares_nothing(self)
        self.held.give_back(self.size)
        self.size = 0


def test_no_more_is_held_than_the_bound() -> None:
    """What is given back can be taken again."""
    held = Bytes(100)
    assert held.take(60)
    assert not held.take(41)
    assert held.take(40)
    held.give_back(60)
    assert held.take(60)
    assert held.held == 100


def test_what_can_be_done_without_goes_first_the_oldest_of_it() -> None:
    """And no more of it than is needed."""
    held = Bytes(100)
    first, second = Holder(held, 40), Holder(held, 40)
    assert held.take(50)
    assert (first.size, second.size, held.held) == (0, 40, 90)
    second.held.spares_nothing(second)
    assert not held.take(20)
    assert second.size == 40

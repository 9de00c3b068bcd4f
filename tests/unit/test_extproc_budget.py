"""Room for bodies: per stream, per group and per worker; who has waited longest gives way."""

from dataclasses import dataclass, field

from epp_worker.extproc.budget import BodyBudget, BodyShare, Taken


@dataclass(eq=False)
class Body:
    """Holds what it was granted; gives all of it back when starved."""

    budget: BodyBudget
    share: BodyShare
    held: int = 0
    starved: int = 0
    answers: list[Taken] = field(default_factory=list)

    def take(self, size: int) -> Taken:
        """Ask for room."""
        taken = self.budget.take(size, self, self.share, already=self.held)
        if taken is Taken.OK:
            self.held += size
        return taken

    def starve(self) -> None:
        """See `Holder.starve`."""
        self.starved += 1
        self.give_back()

    def give_back(self) -> None:
        """The end."""
        size, self.held = self.held, 0
        self.budget.give_back(size, self, self.share)


def test_a_group_that_is_full_pays_for_itself() -> None:
    """The group's own idlest body gives way, though another group's has waited longer."""
    budget = BodyBudget(per_stream=50, total=200, per_group=100)
    noisy, quiet = BodyShare(), BodyShare()
    patient = Body(budget, quiet)
    first, second, third = (Body(budget, noisy) for _ in range(3))
    assert patient.take(40) is Taken.OK
    assert [first.take(50), second.take(50), third.take(30)] == [Taken.OK] * 3
    assert (patient.starved, first.starved, second.starved) == (0, 1, 0)
    assert (noisy.held, quiet.held, budget.held) == (80, 40, 120)
    assert (budget.group_full, budget.worker_full) == (1, 0)


def test_who_went_on_is_not_the_idlest() -> None:
    """Taking again moves a body to the end of both lines."""
    budget = BodyBudget(per_stream=90, total=100)
    share = BodyShare()
    first, second, third = (Body(budget, share) for _ in range(3))
    assert [first.take(30), second.take(30), first.take(10), third.take(40)] == [Taken.OK] * 4
    assert (first.starved, second.starved) == (0, 1)
    assert budget.held == share.held == 80


def test_the_worker_is_full_before_the_group_is() -> None:
    """Then the idlest of all gives way, of whatever group."""
    budget = BodyBudget(per_stream=90, total=100, per_group=90)
    one, other = BodyShare(), BodyShare()
    old, new = Body(budget, one), Body(budget, other)
    assert [old.take(60), new.take(60)] == [Taken.OK] * 2
    assert (old.starved, one.held, other.held) == (1, 0, 60)
    assert budget.worker_full == 1


def test_what_can_never_fit_is_refused() -> None:
    """More than a body or a group may hold starves nobody."""
    budget = BodyBudget(per_stream=1_000, total=500, per_group=100)
    share = BodyShare()
    body, other = Body(budget, share), Body(budget, share)
    assert other.take(10) is Taken.OK
    assert body.take(1_001) is Taken.STREAM_FULL
    assert body.take(101) is Taken.GROUP_FULL
    assert other.starved == 0
    assert body.take(100) is Taken.OK
    assert other.starved == 1
    body.give_back()
    assert (budget.held, share.held, share.holders) == (0, 0, {})


def test_no_group_may_have_more_than_the_worker() -> None:
    """A bound per group beyond the worker's is the worker's."""
    assert BodyBudget(per_stream=1, total=10, per_group=100).per_group == 10
    assert BodyBudget(per_stream=1, total=10).per_group == 10

"""A failing run made small: faults left out one by one, then made shorter, as long as it fails.

The dice of the network follow from the seed alone, so what is left of a script goes its own way:
it may fail otherwise than the whole one did. Any broken invariant counts.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.sim.faults import Plan
from tests.sim.run import Outcome, run

MAX_RUNS = 60


def shrink(
    outcome: Outcome, *, runs: int = MAX_RUNS, again: Callable[[Plan], Outcome] = run
) -> Outcome:
    """The smallest failing run found within so many runs."""
    best = outcome
    progress = True
    while progress and runs > 0:
        progress = False
        for plan in _smaller(best.plan):
            if runs == 0:
                break
            runs -= 1
            tried = again(plan)
            if tried.violation is not None:
                best, progress = tried, True
                break
    return best


def _smaller(plan: Plan) -> Iterator[Plan]:
    for index in range(len(plan.faults)):
        rest = plan.faults[:index] + plan.faults[index + 1 :]
        yield replace(plan, faults=rest)
    for index, fault in enumerate(plan.faults):
        if fault.seconds > 0.5:
            less = replace(fault, seconds=round(fault.seconds / 2, 2))
            yield replace(plan, faults=(*plan.faults[:index], less, *plan.faults[index + 1 :]))
    if plan.coordinators > 2:
        yield replace(plan, coordinators=2)
    if plan.workers > 3:
        yield replace(plan, workers=plan.workers - 1)
    if plan.groups > 3:
        yield replace(plan, groups=max(3, plan.groups // 2))


def report(outcome: Outcome, *, lines: int = 60) -> str:
    """A failing run for people: the script, what broke, and what came before."""
    tail = "\n".join(f"  {line}" for line in outcome.tail[-lines:])
    return f"{outcome.plan}\n{outcome.violation}\n{tail}"

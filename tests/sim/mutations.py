"""Faults put into the code on purpose: the simulation is worth something if it finds them.

Each replaces one small piece of the real code while a run lasts, and says which invariants may be
the first to break.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

Patch = Callable[[ExitStack], None]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One fault.

    Attributes:
        breaks: invariants of which one must be the first to break.
        apply: puts it in; the stack takes it out.
        first: the first seed to try.
    """

    breaks: tuple[str, ...]
    apply: Patch
    first: int = 0

    def seeds(self, count: int) -> range:
        return range(self.first, self.first + count)


def _replace(target: Any, name: str, new: Any) -> Patch:
    return lambda stack: stack.enter_context(mock.patch.object(target, name, new))


MUTATIONS: dict[str, Mutation] = {}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """With this fault in the code."""
    with ExitStack() as stack:
        MUTATIONS[name].apply(stack)
        yield

"""Annotations of pools that nobody obeys, for the console: in a cluster these are Events."""

from collections.abc import Iterable

from fleet.model import Pool, group_pools
from fleet.model.pins import agreed, pin_of
from fleet.model.pools import response_phase_fault


def ignored(pools: Iterable[Pool]) -> dict[str, str]:
    """What each pool asks for in vain: `InferencePool ns/name: InvalidPin` -> why, and what to
    do."""
    everything = tuple(pools)
    found = {}
    for pool in everything:
        pinned, fault = pin_of(pool.annotations), response_phase_fault(pool.annotations)
        if pinned.problem:
            found[f"InferencePool {pool.ref}: InvalidPin"] = pinned.problem
        if fault:
            found[f"InferencePool {pool.ref}: InvalidResponsePhase"] = fault
    for members in group_pools(everything).values():
        together = agreed([pin_of(each.annotations).pin for each in members])
        for each in members if together.problem else ():
            found.setdefault(f"InferencePool {each.ref}: InvalidPin", together.problem)
    return found

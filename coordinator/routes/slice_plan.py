"""What to do so that a group's slices say what a route says. Pure: slices in, steps out."""

from collections.abc import Sequence
from dataclasses import dataclass

from coordinator.routes.contract import Route
from coordinator.routes.slice_format import IPV4, Slice, encode, families_of, slice_name
from fleet.kube.contract import Raw
from fleet.model import EpochVersion
from fleet.model.identity import NONE


@dataclass(frozen=True, slots=True)
class Step:
    """One request: create (`standing` None), replace, or delete (`body` None)."""

    name: str
    standing: Slice | None
    body: Raw | None


@dataclass(frozen=True, slots=True)
class Steps:
    """What to do, in this order; nothing if all is right.

    Attributes:
        refused: a higher epoch, or a higher version of the same epoch, stands there.
        stamp: addresses are right, only the epoch is not ours.
    """

    steps: tuple[Step, ...]
    refused: bool = False
    stamp: bool = False


def highest(standing: Sequence[Slice]) -> EpochVersion:
    """The highest epoch.version that stands on any of a group's slices."""
    return max((each.version for each in standing if each.version is not None), default=NONE)


def writing(route: Route, standing: Sequence[Slice], *, port_name: str, fleet: str) -> Steps:
    """How to make `standing` say `route`.

    A slice is written if its addresses, its epoch or its form differ; a new version alone rewrites
    nothing. New addresses come before the loss of old ones.

    Raises:
        RouteError: the route cannot be said in slices.
    """
    if highest(standing) > route.version:
        return Steps((), refused=True)
    families = families_of(route)
    if not families:
        families = {min((each.family for each in standing if each.sound), default=IPV4): ()}
    by_name = {each.name: each for each in standing}
    writes, wrong = [], False
    for family, addresses in families.items():
        name = slice_name(route.group, family, fleet)
        there = by_name.get(name)
        if there is not None and there.family == family:
            del by_name[name]
        else:
            there = None  # the address family of a slice never changes: deleted, then created
        same = there is not None and _same(there, addresses, port_name)
        if same and there is not None and _epoch(there) == route.version.epoch:
            continue
        wrong = wrong or not same
        body = encode(route, addresses, family, port_name=port_name, fleet=fleet)
        writes.append(Step(name, there, body))
    deletes = [Step(each.name, each, None) for each in by_name.values()]
    in_the_way = [step for step in deletes if any(step.name == each.name for each in writes)]
    after = [step for step in deletes if step not in in_the_way]
    return Steps((*in_the_way, *writes, *after), stamp=not wrong and not deletes)


def removing(standing: Sequence[Slice], epoch: int) -> Steps:
    """How to delete all slices of a group, in the term with this epoch."""
    if highest(standing).epoch > epoch:
        return Steps((), refused=True)
    return Steps(tuple(Step(each.name, each, None) for each in standing))


def said(standing: Sequence[Slice]) -> Route | None:
    """The route that a group's slices say; None if one of them is not to be trusted."""
    if not standing or not all(each.sound for each in standing):
        return None
    addresses = tuple(dict.fromkeys(a for each in standing for a in each.addresses))
    return Route(standing[0].group, addresses, highest(standing))


def _epoch(there: Slice) -> int:
    return -1 if there.version is None else there.version.epoch


def _same(there: Slice, addresses: tuple[str, ...], port_name: str) -> bool:
    return there.sound and there.port_name == port_name and set(there.addresses) == set(addresses)

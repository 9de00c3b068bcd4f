"""Plugin types that other packages bring, by entry points of the group `epp_fleet.plugins`.

An entry point names an `epp_worker.scheduling.plugin.PluginType`. Only what a configuration needs
of it is looked at here: type, parameters, roles, and whether it is experimental.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec

from fleet.picking.kinds import KINDS, PluginKind, Role

GROUP = "epp_fleet.plugins"


@dataclass(frozen=True, slots=True)
class Extensions:
    """What was found.

    Attributes:
        found: what each entry point named, by plugin type.
        kinds: the fleet's own plugin types and these.
        problems: entry points that could not be used, a line each.
    """

    found: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, PluginKind] = field(default_factory=lambda: KINDS)
    problems: tuple[str, ...] = ()


def load_extensions(points: Iterable[EntryPoint] | None = None) -> Extensions:
    """Import every plugin type that is installed. Blocking, and runs the packages' code.

    Args:
        points: instead of those installed.
    """
    found: dict[str, Any] = {}
    kinds: dict[str, PluginKind] = dict(KINDS)
    problems: list[str] = []
    for point in sorted(
        entry_points(group=GROUP) if points is None else points, key=lambda each: each.name
    ):
        where = f"plugin {point.name} ({point.value})"
        try:
            thing = point.load()
            kind = _kind_of(thing)
        except Exception as error:  # noqa: BLE001 - whatever a package's code raises
            problems.append(f"{where}: {type(error).__name__}: {error}")
            continue
        if kind.type in kinds:
            problems.append(f"{where}: there is a plugin type {kind.type} already")
        else:
            kinds[kind.type], found[kind.type] = kind, thing
    return Extensions(found, kinds, tuple(problems))


def _kind_of(thing: Any) -> PluginKind:
    roles = frozenset(Role(each) for each in thing.roles)
    if not (isinstance(thing.type, str) and thing.type):
        raise TypeError("type must be a name")
    if not roles:
        raise TypeError("roles must say what it is, for instance {Role.SCORER}")
    if not (isinstance(thing.parameters, type) and issubclass(thing.parameters, msgspec.Struct)):
        raise TypeError("parameters must be a msgspec.Struct type")
    if not callable(thing.make):
        raise TypeError("make must be callable")
    return PluginKind(thing.type, roles, thing.parameters, bool(thing.experimental))

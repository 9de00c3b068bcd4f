"""All plugin types that a worker can make: the fleet's own, and those that packages bring."""

from collections.abc import Iterator, Mapping

from epp_worker.scheduling.plugin import PluginType
from epp_worker.scheduling.plugins import (
    affinity_scorers,
    deciders,
    detectors,
    filters,
    handlers,
    load_scorers,
    pickers,
    sessions,
    verifiers,
)
from epp_worker.scheduling.prefix.plugins import PREFIX_PLUGINS
from fleet.picking.extensions import Extensions

_ROOMS = (
    load_scorers.TYPES,
    affinity_scorers.TYPES,
    sessions.TYPES,
    filters.TYPES,
    pickers.TYPES,
    handlers.TYPES,
    deciders.TYPES,
    detectors.TYPES,
    verifiers.TYPES,
    PREFIX_PLUGINS,
)

BUILT_IN: Mapping[str, PluginType] = {each.type: each for room in _ROOMS for each in room}


def all_types(extensions: Extensions) -> Mapping[str, PluginType]:
    """The types by name; those of packages never replace the fleet's own."""
    return {**dict(_foreign(extensions)), **BUILT_IN}


def _foreign(extensions: Extensions) -> Iterator[tuple[str, PluginType]]:
    for type_, found in extensions.found.items():
        if isinstance(found, PluginType):
            yield type_, found

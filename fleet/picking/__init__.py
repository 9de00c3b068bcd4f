"""How pools pick: the llm-d router's EndpointPickerConfig, read strictly and filled in."""

from fleet.picking.config import BUILT_IN, DEFAULT, PickerConfig, PluginSpec, ProfileSpec
from fleet.picking.decode import decode
from fleet.picking.kinds import KINDS, PluginKind, Role

__all__ = [
    "BUILT_IN",
    "DEFAULT",
    "KINDS",
    "PickerConfig",
    "PluginKind",
    "PluginSpec",
    "ProfileSpec",
    "Role",
    "decode",
]

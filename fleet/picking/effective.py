"""A configuration as people read it: a row for each plugin that has a say, and what is not done."""

import json
from typing import Any

import msgspec

from fleet.picking.choice import Chosen
from fleet.picking.config import PickerConfig, PluginSpec
from fleet.picking.kinds import Role
from fleet.picking.parameters import shown

_FIRST = (Role.FILTER, Role.SCORER, Role.PICKER, Role.HANDLER, Role.DETECTOR)


class EffectiveRow(msgspec.Struct, frozen=True):
    """One plugin.

    Attributes:
        profile: "" for what stands above profiles.
        weight: of a scorer.
        parameters: as JSON, defaults too; "" = it takes none, or none that have a value.
        left_out: what happens instead, where the fleet does not have it.
    """

    profile: str
    plugin: str
    type: str
    role: str
    weight: float | None
    parameters: str
    left_out: str = ""


class EffectiveConfig(msgspec.Struct, frozen=True):
    """What a pool picks by.

    Attributes:
        problem: why it is not what the pool asks for, or not the newest; "" = it is.
        response_phase: for pools whose annotations ask for none; "" = what the fleet does.
    """

    name: str
    problem: str
    rows: tuple[EffectiveRow, ...]
    warnings: tuple[str, ...]
    response_phase: str = ""


def effective_config(chosen: Chosen) -> EffectiveConfig:
    """All of it."""
    config = chosen.config
    return EffectiveConfig(
        config.name,
        chosen.problem,
        effective_rows(config),
        config.warnings,
        config.response_phase,
    )


def effective_rows(config: PickerConfig) -> tuple[EffectiveRow, ...]:
    """Profiles in their order, then what stands above them."""
    rows = [
        _row(profile.name, config.plugins[name], weight)
        for profile in config.profiles
        for name, weight in profile.plugins
    ]
    above = dict.fromkeys((config.handler, config.detector))
    deciders = [name for name, spec in config.plugins.items() if Role.DECIDER in spec.roles]
    rows += [_row("", config.plugins[name], None) for name in (*above, *deciders)]
    return tuple(rows)


def _row(profile: str, spec: PluginSpec, weight: float | None) -> EffectiveRow:
    roles = sorted(spec.roles, key=lambda role: _FIRST.index(role) if role in _FIRST else 9)
    if not profile:
        roles = [role for role in roles if role is not Role.FILTER]
    elif Role.DETECTOR in roles:
        roles = [Role.FILTER]
    given: dict[str, Any] = shown(spec.parameters)
    return EffectiveRow(
        profile,
        spec.name,
        spec.type,
        " and ".join(roles),
        weight if Role.SCORER in spec.roles else None,
        json.dumps(given) if given else "",
        spec.left_out,
    )

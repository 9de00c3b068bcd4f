"""A picker configuration with everything filled in: what a pool's scheduler is built from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fleet.picking.kinds import Role
from fleet.picking.parameters import (
    ActiveRequestParameters,
    Parameters,
    PickerParameters,
    PrefixCacheScorerParameters,
    UtilizationDetectorParameters,
)

BUILT_IN = "built-in"
"""The name of the configuration of pools for which nobody wrote one."""


@dataclass(frozen=True, slots=True)
class PluginSpec:
    """One plugin instance.

    Attributes:
        parameters: a struct of its type's kind.
        left_out: what happens instead, where the fleet does not have the type; "" = it has.
    """

    name: str
    type: str
    roles: frozenset[Role]
    parameters: Any
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class ProfileSpec:
    """A profile.

    Attributes:
        plugins: (name of the instance, weight) in the order written; the weight counts for scorers.
    """

    name: str
    plugins: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class PickerConfig:
    """What a pool picks by.

    Attributes:
        name: of the configuration in its folder.
        plugins: by name of the instance, in the order written; those that defaults add follow.
        handler: the profile handler's name.
        detector: the saturation detector's name.
        parsers: the parsers' types in the order written; empty = the default ones.
        gates: feature gates that were named.
        warnings: what it says and the fleet does not do, a line each.
        response_phase: one of `RESPONSE_PHASES` for pools that ask for none; "" = what the fleet
            does.
    """

    name: str
    plugins: Mapping[str, PluginSpec]
    profiles: tuple[ProfileSpec, ...]
    handler: str
    detector: str
    parsers: tuple[str, ...] = ()
    gates: Mapping[str, bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    response_phase: str = ""


def _spec(type_: str, role: Role, parameters: Any = None) -> PluginSpec:
    roles = frozenset({role})
    return PluginSpec(type_, type_, roles, Parameters() if parameters is None else parameters)


_DEFAULT = (
    _spec("queue-scorer", Role.SCORER),
    _spec("kv-cache-utilization-scorer", Role.SCORER),
    _spec("prefix-cache-scorer", Role.SCORER, PrefixCacheScorerParameters()),
    _spec("active-request-scorer", Role.SCORER, ActiveRequestParameters()),
    _spec("max-score-picker", Role.PICKER, PickerParameters()),
    _spec("single-profile-handler", Role.HANDLER),
    PluginSpec(
        "utilization-detector",
        "utilization-detector",
        frozenset({Role.DETECTOR, Role.FILTER}),
        UtilizationDetectorParameters(),
    ),
)

DEFAULT = PickerConfig(
    name=BUILT_IN,
    plugins={spec.name: spec for spec in _DEFAULT},
    profiles=(
        ProfileSpec(
            "default",
            (
                ("queue-scorer", 2.0),
                ("kv-cache-utilization-scorer", 2.0),
                ("prefix-cache-scorer", 3.0),
                ("active-request-scorer", 1.0),
                ("max-score-picker", 1.0),
            ),
        ),
    ),
    handler="single-profile-handler",
    detector="utilization-detector",
)
"""The llm-d router's default, and requests in flight besides: they tell the endpoints apart between
two scrapes."""

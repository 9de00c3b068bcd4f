"""How pools pick, as far as the fleet's settings say; the rest is in picker configurations."""

from dataclasses import dataclass
from typing import Annotated

from fleet.settings.limits import Range


@dataclass(frozen=True, slots=True)
class PickingSettings:
    """How endpoints are picked."""

    configs_folder: str = ""
    """A folder of picker configurations (EndpointPickerConfig), NAME.yaml each, re-read on change;
    in a cluster a ConfigMap mounted as files. A pool takes that which its annotation
    epp-fleet.dev/profile names, else `default`. Empty = every pool picks by the built-in one."""

    poll_seconds: Annotated[float, Range(0.05, 600)] = 1.0
    """How often the folder is looked at."""

    allow_experimental: bool = False
    """Take configurations that name experimental plugins."""

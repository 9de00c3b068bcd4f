"""Settings: one YAML file, then `EPP_FLEET_*` environment, then flags; checked as a whole."""

from fleet.settings.bounds import BoundSettings
from fleet.settings.load import load_settings
from fleet.settings.model import (
    CoordinatorSettings,
    ElectionSettings,
    KubernetesSettings,
    LogSettings,
    MembershipSettings,
    OwnershipSettings,
    PlacementSettings,
    RedisSettings,
    RouteSettings,
    ScrapeSettings,
    SecuritySettings,
    Settings,
    SourceSettings,
    WorkerSettings,
)

__all__ = [
    "BoundSettings",
    "CoordinatorSettings",
    "ElectionSettings",
    "KubernetesSettings",
    "LogSettings",
    "MembershipSettings",
    "OwnershipSettings",
    "PlacementSettings",
    "RedisSettings",
    "RouteSettings",
    "ScrapeSettings",
    "SecuritySettings",
    "Settings",
    "SourceSettings",
    "WorkerSettings",
    "load_settings",
]

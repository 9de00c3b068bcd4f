"""Read, merge and check settings."""

from collections.abc import Mapping
from pathlib import Path

from fleet.settings.model import Settings


def load_settings(
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, str],
) -> Settings:
    """Merge file, environment and flags (later wins) and check the whole.

    Args:
        path: the YAML file, or None for none.
        environ: looked at for `EPP_FLEET_<SECTION>__<FIELD>` (`EPP_FLEET_REDIS__URL`) and
            `EPP_FLEET_FLEET`; other `EPP_FLEET_*` names that are not settings are left alone.
        flags: field path -> text (`{"worker.ext_proc_port": "9002"}`).

    Raises:
        SettingsError: one line per bad field, starting with its path.
    """
    raise NotImplementedError

"""`epp-fleet config check`: what is wrong with a settings file."""

import argparse
import sys
from pathlib import Path

from fleet.settings import load_settings


def check_config(arguments: argparse.Namespace) -> int:
    """0 if the file alone is good.

    Raises:
        SettingsError: one line per bad field.
    """
    # The environment of this shell is not that of the processes that will read the file.
    load_settings(Path(arguments.file), {}, {})
    sys.stdout.write(f"{arguments.file}: good\n")
    return 0

"""`epp-fleet config check`: what is wrong with a settings file or a picker configuration."""

import argparse
import sys
from pathlib import Path

from fleet.settings import load_settings


def check_config(arguments: argparse.Namespace) -> int:
    """0 if the file alone is good.

    Raises:
        SettingsError: one line per bad field.
    """
    from fleet.cli.picker_configs import check, read_text

    path = Path(arguments.file)
    text = read_text(path)
    if text:
        check(path, text, experimental=arguments.experimental)
        return 0
    # The environment of this shell is not that of the processes that will read the file.
    load_settings(path, {}, {})
    sys.stdout.write(f"{arguments.file}: good\n")
    return 0

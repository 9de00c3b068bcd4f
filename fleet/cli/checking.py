"""`epp-fleet config check`: what is wrong with a settings file or a picker configuration."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from fleet.cli.output import FORMAT, write_json
from fleet.cli.where import environment
from fleet.errors import SettingsError
from fleet.settings import load_settings
from fleet.settings.load import settings_in


def check_config(arguments: argparse.Namespace) -> int:
    """0 if the file is good, with the settings of this environment as the processes apply them.

    Raises:
        SettingsError: one line per bad field.
    """
    from fleet.cli.picker_configs import check, read_text

    path = Path(arguments.file)
    as_json = arguments.output == "json"
    text = read_text(path)
    if text:
        check(path, text, experimental=arguments.experimental, as_json=as_json)
        return 0
    environ: Mapping[str, str] = {} if arguments.file_only else environment()
    applied = settings_in(environ)
    try:
        load_settings(path, environ, {})
    except SettingsError as error:
        if as_json:
            _write(arguments.file, applied, error.problems)
            return 2
        if applied:
            sys.stderr.write(f"epp-fleet: {_together(applied)}\n")
        raise
    if as_json:
        _write(arguments.file, applied, ())
        return 0
    sys.stdout.write(f"{arguments.file}: good{f' {_together(applied)}' if applied else ''}\n")
    return 0


def _together(applied: tuple[str, ...]) -> str:
    return (
        f"together with {len(applied)} setting{'' if len(applied) == 1 else 's'} of this "
        f"environment ({', '.join(applied)}); the file alone: --file-only"
    )


def _write(file: str, applied: tuple[str, ...], problems: tuple[str, ...]) -> None:
    write_json(
        {
            "format": FORMAT,
            "file": file,
            "kind": "settings",
            "good": not problems,
            "problems": list(problems),
            "environment": list(applied),
        }
    )

"""`epp-fleet ca init`: the fleet's own CA and certificates, in a folder or as Secrets."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from fleet.cli.output import FORMAT, write_json
from fleet.clock import SystemClock
from fleet.settings import Settings, load_settings


def init_ca(arguments: argparse.Namespace) -> int:
    """Make what is missing, say what was made.

    Raises:
        FleetError: settings are wrong, a file exists, or the API server refuses.
    """
    flags = {"fleet": arguments.fleet} if arguments.fleet else {}
    config = None if arguments.config is None else Path(arguments.config)
    settings = load_settings(config, os.environ, flags)
    made = (
        _folder(Path(arguments.out), settings)
        if arguments.out is not None
        else asyncio.run(_secrets(arguments.secret, settings))
    )
    if arguments.output == "json":
        write_json({"format": FORMAT, "made": list(made)})
        return 0
    for one in made:
        sys.stdout.write(f"{one}\n")
    if not made:
        sys.stdout.write("nothing was due\n")
    return 0


def _folder(folder: Path, settings: Settings) -> tuple[str, ...]:
    from fleet.certificates.folder import write_folder

    return tuple(map(str, write_folder(folder, settings.fleet, SystemClock().wall())))


async def _secrets(prefix: str, settings: Settings) -> tuple[str, ...]:
    from fleet.kube.certificate_secrets import keep_secrets
    from fleet.kube.client import open_client

    api = await open_client(settings.kubernetes)
    try:
        names = await keep_secrets(api, prefix, settings.fleet, SystemClock().wall())
        return tuple(f"secret/{name}" for name in names)
    finally:
        await api.close()

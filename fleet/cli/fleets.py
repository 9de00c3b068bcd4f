"""`epp-fleet local` and `epp-fleet demo`: the commands that run a fleet themselves."""

import argparse
import os
import sys
from pathlib import Path

from fleet.cli.where import environment
from fleet.local.command import run_local
from fleet.local.demo import run_demo
from fleet.local.hiding import hide_argument
from fleet.local.options import LocalOptions
from fleet.local.state import default_path
from fleet.settings import LogSettings
from fleet.settings.limits import masked_url
from fleet.telemetry import setup_logging


def _say(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever listened has gone (`| grep -m1 ready`): the fleet goes on, unheard.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser().resolve() if text else None


def local(arguments: argparse.Namespace) -> int:
    """See `run_local`."""
    # Faults of the manifests are told on the console; anything else that logs is a fault of ours.
    setup_logging(LogSettings(level="error"), "local")
    if arguments.redis_url and masked_url(arguments.redis_url) != arguments.redis_url:
        hide_argument(arguments.redis_url)
    environ = environment()
    options = LocalOptions(
        state_file=_path(arguments.state_file) or default_path(environ),
        state_file_named=bool(arguments.state_file),
        manifests=_path(arguments.manifests),
        workers=arguments.workers,
        coordinators=arguments.coordinators,
        gateway=arguments.gateway == "envoy",
        gateway_port=arguments.gateway_port,
        redis_url=arguments.redis_url,
        config=_path(arguments.config),
    )
    return run_local(options, environ, _say)


def demo(arguments: argparse.Namespace) -> int:
    """See `run_demo`."""
    setup_logging(LogSettings(level="error"), "demo")
    return run_demo(arguments.seconds, _path(arguments.json), environment())

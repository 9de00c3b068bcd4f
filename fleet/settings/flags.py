"""Command lines of the worker and the coordinator: `--id`, `--config` and their listeners.

A flag that sets a field has the field's path as its `dest`, so flags need no table of their own.
Values stay text here: `load_settings` checks them together with the file and the environment.
"""

import argparse
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fleet.errors import SettingsError
from fleet.settings.checks import check_process
from fleet.settings.fields import all_fields
from fleet.settings.limits import is_dns_label, shown
from fleet.settings.load import load_settings
from fleet.settings.model import Settings

_EPILOG = """\
settings:
  Read from the file of --config, then from the environment, then from flags; later wins.
  In the file a setting is `section: {field: value}`; in the environment it is
  EPP_FLEET_<SECTION>__<FIELD>, so redis.url is EPP_FLEET_REDIS__URL.
  `epp-fleet config check FILE` tells what is wrong with a file.

exit codes:
  0 stopped when asked to, 1 failed, 2 wrong settings or command line
"""


@dataclass(frozen=True, slots=True)
class ProcessArgs:
    """What a process was started with.

    Attributes:
        id: this process' name in the fleet, a DNS label.
    """

    id: str
    settings: Settings


def add_settings_flags(parser: argparse.ArgumentParser) -> None:
    """Add `--config`."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings file (YAML)")


def flags_of(namespace: argparse.Namespace) -> dict[str, str]:
    """The fields that flags set: path -> text, as `load_settings` takes them."""
    return {
        path: value
        for path, value in vars(namespace).items()
        if path in all_fields() and value is not None
    }


def _process_parser(
    prog: str, description: str, section: str, helps: Mapping[str, str]
) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--id",
        metavar="NAME",
        help="name in the fleet, a DNS label; default: POD_NAME, else the host name",
    )
    add_settings_flags(parser)
    for name, text in helps.items():
        field = all_fields()[f"{section}.{name}"]
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=field.path,
            metavar="PORT" if name.endswith("_port") else "ADDRESS",
            help=f"{text}; sets {field.path} (default {field.default})",
        )
    return parser


def worker_parser() -> argparse.ArgumentParser:
    """The command line of `epp-fleet-worker`."""
    return _process_parser(
        "epp-fleet-worker",
        "Serve ext_proc for the pools that the fleet's leader assigns to this worker.",
        "worker",
        {
            "host": "address to listen on",
            "ext_proc_port": "gateways' ext_proc streams",
            "health_port": "gRPC health, plaintext",
            "internal_port": "leader and other workers",
            "http_port": "metrics and debugging",
        },
    )


def coordinator_parser() -> argparse.ArgumentParser:
    """The command line of `epp-fleet-coordinator`."""
    return _process_parser(
        "epp-fleet-coordinator",
        "Take part in leader election; as the leader, assign pools to workers.",
        "coordinator",
        {
            "host": "address to listen on",
            "http_port": "shard-map page, API, metrics and health",
            "internal_port": "followers of the map",
        },
    )


def _id(given: str | None, environ: Mapping[str, str]) -> str:
    """The process' name: as given, else the pod's, else the host's first label in lower case."""
    if given is not None:
        name, origin = given, "command line"
    elif environ.get("POD_NAME"):
        name, origin = environ["POD_NAME"], "environment POD_NAME"
    else:
        name, origin = socket.gethostname().partition(".")[0].lower(), "host name"
    if not is_dns_label(name):
        wanted = "must be a DNS label (1 to 63 of a-z, 0-9 and inner '-'); set one with --id"
        raise SettingsError([f"id: {wanted}; got {shown(name)} ({origin})"])
    return name


def parse_process(
    parser: argparse.ArgumentParser,
    section: str,
    argv: Sequence[str],
    environ: Mapping[str, str],
) -> ProcessArgs:
    """Read a process' command line and load its settings.

    Args:
        parser: `worker_parser()` or `coordinator_parser()`.
        section: `worker` or `coordinator`.
        argv: arguments without the program's name.

    Raises:
        SettingsError: settings or id are wrong; all problems, one line each.
        SystemExit: 2 for a usage error, 0 for `--help`.
    """
    namespace = parser.parse_args(list(argv))
    problems: list[str] = []
    name = ""
    try:
        name = _id(namespace.id, environ)
    except SettingsError as error:
        problems += error.problems
    try:
        settings = load_settings(namespace.config, environ, flags_of(namespace))
    except SettingsError as error:
        raise SettingsError([*problems, *error.problems]) from None
    problems += [
        f"{finding.fields[0]}: {finding.message}" for finding in check_process(settings, section)
    ]
    if problems:
        raise SettingsError(problems)
    return ProcessArgs(name, settings)

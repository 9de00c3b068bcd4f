"""The whole command line. What a command needs is imported when it runs: help and a stop signal
must not wait for it."""

import argparse
from collections.abc import Callable
from importlib import import_module

from fleet import __version__
from fleet.cli.asking import add_asking
from fleet.cli.shapes import Help, add_output, examples
from fleet.installed import is_compiled

Command = Callable[[argparse.Namespace], int]

EPILOG = """\
examples:
  epp-fleet demo                          a fleet with faults, and what the traffic saw of them
  epp-fleet local                         a fleet with 6 sample pools, until Ctrl-C
  epp-fleet local --manifests ./my-pools  the same with your own InferencePools and Pods
  epp-fleet status                        the fleet at a glance; --watch goes on
  epp-fleet explain acme/llama-8b         who owns one pool, why, and who else could
  epp-fleet plan --remove worker-1        what would move if that worker went
  epp-fleet history acme/llama-8b         who had one pool when, and whether anything was lost
  epp-fleet drain worker-1 --wait         hand all its pools to the others, and see it done
  epp-fleet ca init --out certificates    a CA and certificates for the internal port
  epp-fleet config check settings.yaml    what is wrong with a settings file
  epp-fleet config check chat.yaml        ... or a picker configuration, and what it comes to
  epp-fleet COMMAND --help                more of one command

which fleet:
  --coordinator URL, else EPP_FLEET_COORDINATOR, else the state file that `local` wrote. Several
  URLs (with commas, or the flag again) are tried in turn.
  drain and undrain need a token: EPP_FLEET_TOKEN_FILE, else the one named in the state file; so do
  the others where security.reads is kubernetes.

output:
  Tables fit the terminal; in a pipe nothing is cut (COLUMNS=n changes that). NO_COLOR is respected.
  With -o json standard output is one document with "format": 1, errors too:
  {"format": 1, "error": {"code", "message"}}.

exit codes:
  0  good
  1  a promise was broken, a pool has no owner (status, explain), all workers or coordinators
     are lost, the leader refused (drain, undrain), or --wait ran out of time
  2  settings or usage
  3  no coordinator reachable
  130, 143  ended by Ctrl-C, by SIGTERM
"""


def _seconds(text: str) -> float:
    from fleet.local.demo_events import LEAST_SECONDS, MOST_SECONDS

    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from None
    if not LEAST_SECONDS <= value <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text} is outside {LEAST_SECONDS:.0f}..{MOST_SECONDS:.0f}"
        )
    return value


def _run(module: str, function: str) -> Command:
    def run(arguments: argparse.Namespace) -> int:
        command: Command = getattr(import_module(f"fleet.cli.{module}"), function)
        return command(arguments)

    return run


def _add_ca(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    actions = commands.add_parser("ca", help="certificates of the internal port").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    init = actions.add_parser(
        "init",
        help="make the fleet's own CA and a certificate for each role",
        description="Make the fleet's own CA and a certificate for each role (coordinator, "
        "worker): in a folder, where nothing is overwritten, or as Secrets NAME-ca, "
        "NAME-coordinator-tls and NAME-worker-tls of the fleet's namespace, which are renewed "
        "when this runs again and they are due. In a cluster with cert-manager let that do it.",
        formatter_class=Help,
        epilog=examples(
            ("ca init --out certificates", "files, for a fleet without a cluster"),
            ("ca init --secret epp-fleet", "Secrets epp-fleet-ca and so on; run it again to renew"),
        ),
    )
    where = init.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="DIR", help="write files (mode 0600) into this folder")
    where.add_argument("--secret", metavar="NAME", help="write Secrets whose names begin so")
    init.add_argument("--fleet", metavar="F", help="the fleet's name; default: from the settings")
    init.add_argument("--config", metavar="F", help="settings file (YAML)")
    add_output(init)
    init.set_defaults(run=_run("certifying", "init_ca"))


def _add_local(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "local",
        help="run a whole fleet on this machine until SIGINT or SIGTERM",
        description="Run a whole fleet on this machine: store, coordinators, workers and Envoy. "
        "Prints `ready` when every pool has an owner that the gateway knows.",
        formatter_class=Help,
        epilog=examples(
            ("local", "6 sample pools on simulated vLLM servers"),
            ("local --manifests ./my-pools", "your own; the folder is followed"),
            ("local --workers 5 --gateway none", "more workers, no Envoy"),
        )
        + "\n\nexit codes: 0 stopped when asked to, 1 all workers or all coordinators lost, "
        "2 settings, usage or manifests",
    )
    parser.add_argument(
        "--manifests",
        metavar="DIR",
        help="folder of InferencePools, Pods, InferenceObjectives and InferenceModelRewrites"
        " (default: a sample)",
    )
    parser.add_argument("--workers", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument("--coordinators", type=int, default=3, metavar="N", help="default: 3")
    parser.add_argument(
        "--gateway", choices=("envoy", "none"), default="envoy", help="default: envoy"
    )
    parser.add_argument("--gateway-port", type=int, metavar="P", help="default: a free one")
    parser.add_argument(
        "--redis-url",
        metavar="URL",
        help="your own Redis or Valkey, waited for if away; default: a bundled Valkey. A URL with "
        "a password is taken off the process list at once (Linux)",
    )
    parser.add_argument(
        "--state-file",
        metavar="F",
        help="where the other commands find this fleet; default: "
        "$XDG_RUNTIME_DIR/epp-fleet/state.json, else ~/.cache/epp-fleet/state.json",
    )
    parser.add_argument("--config", metavar="F", help="settings file (YAML)")
    parser.set_defaults(run=_run("fleets", "local"), stoppable=True)


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "demo",
        help="a local fleet under traffic: drain, worker kill, leader kill, empty store",
        description="Run a local fleet under steady traffic through Envoy, drain a worker, kill a "
        "worker, kill the leader, restart the store empty, and show what the requests saw of it.",
        formatter_class=Help,
        epilog=examples(
            ("demo", "40 seconds"),
            ("demo --seconds 15 --json demo.json", "shorter, the result in a file too"),
        )
        + "\n\nexit codes: 0 nothing lost where that is promised and every recovery within 3x its "
        "budget, 1 otherwise, 2 settings or usage",
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=40.0, metavar="N", help="at least 15 (default: 40)"
    )
    parser.add_argument("--json", metavar="F", help="write the result to this file too")
    parser.set_defaults(run=_run("fleets", "demo"), stoppable=True)


def _add_config(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    config = commands.add_parser("config", help="check a settings file or a picker configuration")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="say what is wrong with a settings file or a picker configuration, by field",
        description="Say what is wrong with a settings file or a picker configuration "
        "(EndpointPickerConfig), by field. Of the latter also what it comes to, and what it says "
        "that the fleet does not do. Settings in this environment (EPP_FLEET_*) are applied as "
        "workers and coordinators apply theirs, and named.",
        formatter_class=Help,
        epilog=examples(
            ("config check settings.yaml", "one line for each bad field"),
            ("config check settings.yaml --file-only", "whatever this environment says"),
            ("config check chat.yaml", "a picker configuration: plugins, weights, warnings"),
        ),
    )
    check.add_argument("file", metavar="F", help="settings file or picker configuration (YAML)")
    check.add_argument(
        "--experimental",
        action="store_true",
        help="take experimental plugins, as where picking.allow_experimental is set",
    )
    check.add_argument(
        "--file-only", action="store_true", help="leave out the settings of this environment"
    )
    add_output(check)
    check.set_defaults(run=_run("checking", "check_config"))


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="epp-fleet",
        description="A few Endpoint Picker workers serve every InferencePool of a cluster.",
        epilog=EPILOG,
        formatter_class=Help,
    )
    hot_path = "compiled" if is_compiled() else "not compiled"
    parser.add_argument(
        "--version",
        action="version",
        version=f"epp-fleet {__version__} (hot path of workers: {hot_path})",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_local(commands)
    _add_demo(commands)
    add_asking(commands, _run)
    _add_ca(commands)
    _add_config(commands)
    return parser

"""`epp-fleet`: parse the command line, run one command, turn errors into lines and exit codes.

Imports are few on purpose: a stop signal during the first tenths of a second must find its handler.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from fleet import __version__
from fleet.errors import FleetError, SettingsError
from fleet.local.faults import Unreachable
from fleet.local.signals import stop_quietly_until_running

MOST_WORKERS = 1000
"""Of a question to `plan`; the coordinator's own bound."""

MOST_MOVES = 1000
"""That `history` shows; the coordinator's own bound."""

EXIT_GOOD, EXIT_BROKEN, EXIT_USAGE, EXIT_UNREACHABLE = 0, 1, 2, 3

EPILOG = """\
examples:
  epp-fleet demo                          a fleet with faults, and what the traffic saw of them
  epp-fleet local                         a fleet with 6 sample pools, until Ctrl-C
  epp-fleet local --manifests ./my-pools  the same with your own InferencePools and Pods
  epp-fleet status                        who serves which pool, and why
  epp-fleet explain acme/llama-8b         why one pool is served, or is not
  epp-fleet plan --remove worker-1        what would move if that worker went
  epp-fleet history acme/llama-8b         who served one pool when, and why it moved
  epp-fleet drain worker-1                hand all its pools to the others
  epp-fleet ca init --out certificates    a CA and certificates for the internal port
  epp-fleet config check settings.yaml    what is wrong with a settings file
  epp-fleet config check chat.yaml        ... or a picker configuration, and what it comes to

which fleet:
  --coordinator URL, else EPP_FLEET_COORDINATOR, else the state file that `local` wrote.
  drain and undrain need a token: EPP_FLEET_TOKEN_FILE, else the one named in the state file; so do
  the others where security.reads is kubernetes.

exit codes:
  0  good
  1  a promise was broken, a pool has no owner (status, explain), all workers or coordinators
     are lost, or the leader refused (drain, undrain)
  2  settings or usage
  3  no coordinator reachable
"""

Command = Callable[[argparse.Namespace], int]


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


def _local(arguments: argparse.Namespace) -> int:
    from fleet.cli.fleets import local

    return local(arguments)


def _demo(arguments: argparse.Namespace) -> int:
    from fleet.cli.fleets import demo

    return demo(arguments)


def _read(name: str) -> Command:
    def run(arguments: argparse.Namespace) -> int:
        from fleet.cli.reading import show

        return show(name, arguments)

    return run


def _explain(arguments: argparse.Namespace) -> int:
    from fleet.cli.explaining import explain

    return explain(arguments)


def _workers(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_WORKERS):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MOST_WORKERS}")
    return int(text)


def _plan(arguments: argparse.Namespace) -> int:
    from fleet.cli.planning import plan

    return plan(arguments)


def _history(arguments: argparse.Namespace) -> int:
    from fleet.cli.history import history

    return history(arguments)


def _moves(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= MOST_MOVES):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {MOST_MOVES}")
    return int(text)


def _drain(on: bool) -> Command:
    def run(arguments: argparse.Namespace) -> int:
        from fleet.cli.draining import set_drain

        return set_drain(arguments, on=on)

    return run


def _config_check(arguments: argparse.Namespace) -> int:
    from fleet.cli.checking import check_config

    return check_config(arguments)


def _init_ca(arguments: argparse.Namespace) -> int:
    from fleet.cli.certifying import init_ca

    return init_ca(arguments)


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
    )
    where = init.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="DIR", help="write files (mode 0600) into this folder")
    where.add_argument("--secret", metavar="NAME", help="write Secrets whose names begin so")
    init.add_argument("--fleet", metavar="F", help="the fleet's name; default: from the settings")
    init.add_argument("--config", metavar="F", help="settings file (YAML)")
    init.set_defaults(run=_init_ca)


def _add_local(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "local",
        help="run a whole fleet on this machine until SIGINT or SIGTERM",
        description="Run a whole fleet on this machine: store, coordinators, workers and Envoy. "
        "Prints `ready` when every pool has an owner that the gateway knows.",
        epilog="exit codes: 0 stopped when asked to, 1 all workers or all coordinators lost, "
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
        help="your own Redis or Valkey, waited for if away; default: a bundled Valkey",
    )
    parser.add_argument(
        "--state-file",
        metavar="F",
        help="where the other commands find this fleet; default: "
        "$XDG_RUNTIME_DIR/epp-fleet/state.json, else ~/.cache/epp-fleet/state.json",
    )
    parser.add_argument("--config", metavar="F", help="settings file (YAML)")
    parser.set_defaults(run=_local, stoppable=True)


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "demo",
        help="a local fleet under traffic: drain, worker kill, leader kill, empty store",
        description="Run a local fleet under steady traffic through Envoy, drain a worker, kill a "
        "worker, kill the leader, restart the store empty, and show what the requests saw of it.",
        epilog="exit codes: 0 nothing lost where that is promised and every recovery within 3x its "
        "budget, 1 otherwise, 2 settings or usage",
    )
    parser.add_argument(
        "--seconds", type=_seconds, default=40.0, metavar="N", help="at least 15 (default: 40)"
    )
    parser.add_argument("--json", metavar="F", help="write the result to this file too")
    parser.set_defaults(run=_demo, stoppable=True)


def _add_fleet_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--coordinator", metavar="URL", help="address of any coordinator")
    where.add_argument("--state-file", metavar="F", help="state file of a local fleet")
    shape = argparse.ArgumentParser(add_help=False)
    shape.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="default: table"
    )
    texts = {
        "status": "who leads, who is alive, who serves which pool; 1 if a pool has no owner",
        "pools": "the pools: owner, stand-by, phase, since when and why",
        "workers": "the workers: state, load, what they own",
    }
    for name, text in texts.items():
        parser = commands.add_parser(name, help=text, description=text, parents=[where, shape])
        parser.set_defaults(run=_read(name))
    text = "one pool: why it is ours or not, its Service, route and owner; 1 if it has none"
    parser = commands.add_parser("explain", help=text, description=text, parents=[where, shape])
    parser.add_argument("pool", metavar="POOL", help="NAMESPACE/NAME, or NAME if it is unique")
    parser.set_defaults(run=_explain)
    text = "what would move if a worker went, or if there were N; nothing is changed"
    parser = commands.add_parser("plan", help=text, description=text, parents=[where, shape])
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--remove", metavar="W", help="id of a worker, as `status` shows it")
    asked.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="so many that take pools; the least loaded go first, new ones are called new-1...",
    )
    parser.set_defaults(run=_plan)
    text = "moves under way, and those that ended: from whom to whom, when, why and how"
    parser = commands.add_parser("history", help=text, description=text, parents=[where, shape])
    parser.add_argument(
        "pool",
        metavar="POOL",
        nargs="?",
        help="NAMESPACE/NAME, or NAME if it is unique; default: all",
    )
    parser.add_argument(
        "--limit", type=_moves, default=100, metavar="N", help="the latest N (default: 100)"
    )
    parser.set_defaults(run=_history)
    for name, text, on in (
        ("drain", "hand all pools of a worker to the others; it keeps running", True),
        ("undrain", "let a drained worker take pools again", False),
    ):
        parser = commands.add_parser(name, help=text, description=text, parents=[where])
        parser.add_argument("worker", metavar="W", help="id of the worker, as `status` shows it")
        parser.set_defaults(run=_drain(on))


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="epp-fleet",
        description="A few Endpoint Picker workers serve every InferencePool of a cluster.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"epp-fleet {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_local(commands)
    _add_demo(commands)
    _add_fleet_commands(commands)
    _add_ca(commands)
    config = commands.add_parser("config", help="check a settings file or a picker configuration")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser(
        "check",
        help="say what is wrong with a settings file or a picker configuration, by field",
        description="Say what is wrong with a settings file or a picker configuration "
        "(EndpointPickerConfig), by field. Of the latter also what it comes to, and what it says "
        "that the fleet does not do.",
    )
    check.add_argument("file", metavar="F", help="settings file or picker configuration (YAML)")
    check.add_argument(
        "--experimental",
        action="store_true",
        help="take experimental plugins, as where picking.allow_experimental is set",
    )
    check.set_defaults(run=_config_check)
    return parser


def _fail(code: int, error: FleetError) -> int:
    problems = error.problems if isinstance(error, SettingsError) else (str(error),)
    for problem in problems:
        sys.stderr.write(f"epp-fleet: {problem}\n")
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    if getattr(arguments, "stoppable", False):
        stop_quietly_until_running()
    command: Command = arguments.run
    try:
        return command(arguments)
    except SettingsError as error:
        return _fail(EXIT_USAGE, error)
    except Unreachable as error:
        return _fail(EXIT_UNREACHABLE, error)
    except FleetError as error:
        return _fail(EXIT_BROKEN, error)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone (`| head`): no news, and nothing left to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN


if __name__ == "__main__":
    sys.exit(main())

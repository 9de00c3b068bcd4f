"""The part of the command line that asks a running fleet, or commands it."""

import argparse
from collections.abc import Callable

from fleet.cli.shapes import (
    Help,
    Once,
    add_output,
    add_where,
    counted,
    examples,
    positive_seconds,
)

MOST_WORKERS = 1000
"""Of a question to `plan`; the coordinator's own bound."""

MOST_MOVES = 1000
"""That `history` shows; the coordinator's own bound."""

WATCH_SECONDS = 1.0
WAIT_SECONDS = 600.0
"""As long as a worker lets streams end by default (`worker.stream_drain_seconds`)."""

PHASES = ("unowned", "opening", "owned", "moving", "quarantined")
STATES = ("alive", "suspect", "draining", "dead")

Run = Callable[[str, str], Callable[[argparse.Namespace], int]]


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    *,
    text: str,
    more: str,
    epilog: str,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=text, description=more, epilog=epilog, formatter_class=Help
    )
    add_where(parser)
    add_output(parser)
    return parser


def _filter(parser: argparse.ArgumentParser, flag: str, metavar: str, text: str) -> None:
    parser.add_argument(flag, action="append", metavar=metavar, help=f"{text}; may be given again")


def _sorting(parser: argparse.ArgumentParser, keys: tuple[str, ...]) -> None:
    parser.add_argument("--sort", choices=keys, default=keys[0], help=f"default: {keys[0]}")
    parser.add_argument("--reverse", action="store_true", help="the last first")


def _add_status(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    parser = _command(
        commands,
        "status",
        text="the fleet at a glance, in one screen; 1 if a pool has no owner",
        more=(
            "The fleet at a glance, in one screen: who leads, how old the map is, pools by phase "
            "and those without owner by name, moves under way, workers and what is wrong with "
            "them, balance. Of many pools only those that need attention are listed; `epp-fleet "
            "pools` has all."
        ),
        epilog=examples(
            ("status", "once; exit 1 if a pool has no owner, 3 if no coordinator answers"),
            ("status --watch", "the same screen every second, until Ctrl-C (exit 130)"),
            ("status --watch 5 | tee log", "no terminal: a line for each change"),
            ("status -o json | jq .summary", "leader, map, phases, unowned, balance"),
        ),
    )
    parser.add_argument(
        "--watch",
        nargs="?",
        type=positive_seconds,
        const=WATCH_SECONDS,
        metavar="SECONDS",
        help="look again every SECONDS (default: 1); goes on with another coordinator if one dies",
    )
    parser.set_defaults(run=run("status", "status"))


def _add_lists(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    parser = _command(
        commands,
        "pools",
        text="the pools: owner, stand-by, phase, since when and why",
        more="The pools: owner (and the next one, while it moves), stand-by, phase, since when and "
        "why.",
        epilog=examples(
            ("pools --phase unowned --phase moving", "what needs attention"),
            ("pools --owner worker-1", "what one worker serves"),
            ("pools --sort since --reverse", "what changed last"),
        ),
    )
    parser.add_argument(
        "--phase", action="append", choices=PHASES, help="only these; may be given again"
    )
    _filter(parser, "--owner", "W", "only those of this worker")
    _filter(parser, "--namespace", "NS", "only those of this namespace")
    _sorting(parser, ("name", "phase", "owner", "since", "reason"))
    parser.set_defaults(run=run("listing", "pools"))
    parser = _command(
        commands,
        "workers",
        text="the workers: state and why, what they own, load, lag",
        more=(
            "The workers: state, pools owned and stood by for, ext_proc streams a second (LOAD) "
            "and open (OPEN), the serving loop's lag, the highest map seen; a line for each that "
            "is suspect or dead, with what it was found so by."
        ),
        epilog=examples(
            ("workers --state suspect --state dead", "who is unwell, and why"),
            ("workers --sort load --reverse", "the busiest first"),
        ),
    )
    parser.add_argument(
        "--state", action="append", choices=STATES, help="only these; may be given again"
    )
    _filter(parser, "--zone", "Z", "only those of this zone")
    _sorting(parser, ("id", "state", "owned", "load", "lag", "zone"))
    parser.set_defaults(run=run("listing", "workers"))


def _add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    parser = _command(
        commands,
        "explain",
        text="one pool: who owns it, since when and why, and who else could; 1 if nobody does",
        more=(
            "One pool: why it is ours or not, its Service and route, who owns it since when and "
            "why, what it picks by; and all candidates in the ring's order, each with the rule "
            "that makes it owner or stand-by, or keeps it from being it."
        ),
        epilog=examples(
            ("explain acme/llama-8b", "exit 1 if it has no owner"),
            ("explain llama-8b", "the name alone, if it is unique"),
            ("explain acme/llama-8b -o json | jq '.groups[].considered'", "the candidates"),
        ),
    )
    parser.add_argument("pool", metavar="POOL", help="NAMESPACE/NAME, or NAME if it is unique")
    parser.add_argument(
        "--picking",
        action="store_true",
        help="also what it picks by, plugin by plugin with parameters",
    )
    parser.set_defaults(run=run("explaining", "explain"))


def _add_plan(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    parser = _command(
        commands,
        "plan",
        text="what would move if a worker went, or if there were N; nothing is changed",
        more="What would move if a worker went, or if there were N; nothing is changed. Exit 1 if "
        "pools would have no worker.",
        epilog=examples(
            ("plan --remove worker-1", "before `drain worker-1`"),
            ("plan --workers 5", "before the autoscaler does it"),
        ),
    )
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "--remove", metavar="W", action=Once, help="id of one worker, as `status` shows it"
    )
    asked.add_argument(
        "--workers",
        type=counted(MOST_WORKERS),
        metavar="N",
        help="so many that take pools; the least loaded go first, new ones are called new-1...",
    )
    parser.set_defaults(run=run("planning", "plan"))


def _add_history(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    parser = _command(
        commands,
        "history",
        text="moves under way and ended: from whom to whom, when, why, and what was lost",
        more=(
            "Moves under way, and those that ended: from whom to whom, when, why and how. The "
            "first lines say whether anything was lost: hand-overs that failed (their pool stayed "
            "where it was), and moves after a death. The store keeps the latest 10,000."
        ),
        epilog=examples(
            ("history", "the latest 100"),
            ("history acme/llama-8b", "of one pool"),
            ("history -o json | jq .summary", "how many failed"),
        ),
    )
    parser.add_argument(
        "pool",
        metavar="POOL",
        nargs="?",
        help="NAMESPACE/NAME, or NAME if it is unique; default: all",
    )
    parser.add_argument(
        "--limit",
        type=counted(MOST_MOVES),
        default=100,
        metavar="N",
        help="the latest N (default: 100)",
    )
    parser.set_defaults(run=run("history", "history"))


def _add_drain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    texts = {
        "drain": (
            "hand all pools of workers to the others; they keep running",
            (
                "Hand all pools of these workers to the others, without losing a request; they "
                "keep running, and take none until `undrain`. With --wait until nothing is left "
                "of them: no pool, and no stream has strayed to them for worker.quiet_seconds (30)."
            ),
            "nothing is left of them",
            examples(
                ("drain worker-1", "returns when the leader has taken it"),
                ("drain worker-1 worker-2 --wait", "with progress; exit 1 after 600 s"),
                ("drain worker-1 --wait --timeout 60", "exit 1 says what is left"),
            ),
        ),
        "undrain": (
            "let drained workers take pools again",
            "Let drained workers take pools again; moves that have not taken effect are "
            "called off.",
            "they are alive again",
            examples(("undrain worker-1", ""), ("undrain worker-1 --wait", "until it is alive")),
        ),
    }
    for name, (text, more, until, epilog) in texts.items():
        parser = _command(commands, name, text=text, more=more, epilog=epilog)
        parser.add_argument(
            "worker", metavar="W", nargs="+", help="ids of workers, as `status` shows them"
        )
        parser.add_argument("--wait", action="store_true", help=f"until {until}")
        parser.add_argument(
            "--timeout",
            type=positive_seconds,
            default=WAIT_SECONDS,
            metavar="S",
            help=f"of --wait; default: {WAIT_SECONDS:g}",
        )
        parser.set_defaults(run=run("draining", name))


def add_asking(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", run: Run) -> None:
    """All of them.

    Args:
        run: makes the command of a function of a module.
    """
    for add in (_add_status, _add_lists, _add_explain, _add_plan, _add_history, _add_drain):
        add(commands, run)

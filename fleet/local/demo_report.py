"""How the demo shows itself: a live line on a terminal, else plain lines; a table at the end."""

import sys
import time
from collections.abc import Collection
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fleet.local.demo_events import PROMISES, Event, Result, Verdict

PLAIN_EVERY_SECONDS = 5.0
NUMBERS = ("requests", "failed", "cut", "recovery")
COLUMNS = ("event", *NUMBERS, "budget", "result")
TITLES = {
    Event.DRAIN: "planned drain",
    Event.WORKER_KILL: "worker kill -9",
    Event.LEADER_KILL: "leader kill -9",
    Event.REDIS_RESTART: "store emptied",
}


class Screen:
    """Where the demo's progress goes."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._told = 0.0

    def say(self, text: str) -> None:
        """One line that stays."""
        self.console.print(Text(text))
        if not self.console.is_terminal:
            sys.stdout.flush()

    def progress(self, elapsed: float, seconds: float, counts: tuple[int, int, int]) -> None:
        """The present state of the traffic."""
        requests, failed, cut = counts
        text = (
            f"{elapsed:5.1f} / {seconds:.0f} s   {requests:,} requests   "
            f"{failed} failed   {cut} cut"
        )
        if self.console.is_terminal:
            if self._live is None:
                self._live = Live(console=self.console, refresh_per_second=8, transient=True)
                self._live.start()
            self._live.update(Text(text, style="bold" if not failed + cut else "bold yellow"))
        elif time.monotonic() - self._told >= PLAIN_EVERY_SECONDS:
            self._told = time.monotonic()
            self.say(text)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def table(self, result: Result) -> None:
        """The end."""
        self.close()
        self.console.print()
        self.console.print(fitting_table(result, self.console))
        for why, count in result.reasons:
            self.console.print(Text(f"  {count} x {why}", style="dim"))
        if result.steady_bad:
            self.console.print(Text(f"{result.steady_bad} bad before any event", style="bold red"))
        self.console.print(
            f"{result.requests:,} requests in {result.seconds:.0f} s; "
            f"epoch {result.epoch_before} -> {result.epoch_after}"
        )
        good, bad = "every promise kept", "a promise was broken"
        style = "bold green" if result.ok else "bold red"
        self.console.print(Text(good if result.ok else bad, style=style))


def _met(verdict: Verdict) -> Text:
    if verdict.met:
        return Text("met", style="green")
    if verdict.tolerable:
        return Text("missed", style="yellow")
    return Text("MISSED", style="bold red")


def result_table(result: Result, left_out: Collection[str] = ()) -> Table:
    """One row an event, without some columns."""
    table = Table(header_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    names = [name for name in COLUMNS if name not in left_out]
    for name in names:
        justify: Literal["right", "left"] = "right" if name in NUMBERS else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for verdict in result.verdicts:
        row = _row(verdict)
        table.add_row(*(row[name] for name in names))
    return table


def _row(verdict: Verdict) -> dict[str, Text | str]:
    again = verdict.good_again_ms
    return {
        "event": TITLES[verdict.event],
        "requests": f"{verdict.requests:,}",
        "failed": str(verdict.failed),
        "cut": str(verdict.cut),
        "recovery": "never" if again is None else f"{again:,} ms",
        "budget": PROMISES[verdict.event].text,
        "result": _met(verdict),
    }


def fitting_table(result: Result, console: Console) -> Table:
    """The widest form of the table that the console shows whole; the narrowest if none."""
    for left_out in ((), ("requests",), ("requests", "budget")):
        table = result_table(result, left_out)
        needed = console.measure(table, options=console.options.update(max_width=200)).maximum
        if needed <= console.width:
            break
    return table

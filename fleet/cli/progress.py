"""Progress of a drain: bars on a terminal, a line for each change elsewhere, nothing with JSON."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from fleet.cli.handing import Left
from fleet.cli.output import make_console, printable


class Shown(Protocol):
    """Where it is shown."""

    def now(self, left: Left, *, done: bool) -> None:
        """What one worker still has."""

    def silent(self, problem: str) -> None:
        """No coordinator answers."""


class _Nothing:
    def now(self, left: Left, *, done: bool) -> None:
        """See `Shown.now`."""

    def silent(self, problem: str) -> None:
        """See `Shown.silent`."""


class _Lines:
    def __init__(self, *, handing_over: bool) -> None:
        self._said: dict[str, str] = {}
        self._handing_over = handing_over

    def now(self, left: Left, *, done: bool) -> None:
        """See `Shown.now`; streams come and go all the time, so they are not said."""
        text = _text(left, done=done, handing_over=self._handing_over, streams=False)
        self._say(left.worker, text)

    def silent(self, problem: str) -> None:
        """See `Shown.silent`."""
        self._say("", printable(problem))

    def _say(self, about: str, text: str) -> None:
        if self._said.get(about) != text:
            self._said[about] = text
            sys.stdout.write(f"{about}: {text}\n" if about else f"{text}\n")
            sys.stdout.flush()


class _Bars:
    def __init__(self, bars: Progress, totals: Mapping[str, int], *, handing_over: bool) -> None:
        self._bars = bars
        self._handing_over = handing_over
        self._totals = {worker: max(1, total) for worker, total in totals.items()}
        self._tasks: dict[str, TaskID] = {
            worker: bars.add_task(worker, total=total, said="")
            for worker, total in self._totals.items()
        }

    def now(self, left: Left, *, done: bool) -> None:
        """See `Shown.now`."""
        total = self._totals[left.worker] = max(self._totals[left.worker], left.pools)
        kept = left.pools if self._handing_over else total * (not done)
        said = _text(left, done=done, handing_over=self._handing_over, streams=True)
        self._bars.update(
            self._tasks[left.worker],
            total=total,
            completed=total if done else min(total - kept, total - (left.strays > 0)),
            said=said,
        )

    def silent(self, problem: str) -> None:
        """See `Shown.silent`."""
        for task in self._tasks.values():
            self._bars.update(task, said=printable(problem))


def _text(left: Left, *, done: bool, handing_over: bool, streams: bool) -> str:
    if done:
        return "all handed over" if handing_over else "takes pools again"
    if not handing_over and not left.lost:
        return f"is {left.state}"
    if streams:
        return left.text()
    return Left(left.worker, left.state, left.pools, left.strays, None).text()


@contextmanager
def shower(totals: Mapping[str, int], *, quiet: bool, handing_over: bool) -> Iterator[Shown]:
    """Show it for the length of a `with` block.

    Args:
        totals: pools that each worker has to hand over.
        handing_over: False = it is waited for that they take pools again.
    """
    console = make_console()
    if quiet:
        yield _Nothing()
    elif not console.is_terminal:
        yield _Lines(handing_over=handing_over)
    else:
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}", markup=False),
        )
        with Progress(*columns, console=console) as bars:
            yield _Bars(bars, totals, handing_over=handing_over)

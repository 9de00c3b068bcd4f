"""`epp-fleet status --watch`: the same screen again and again, or a line for each change.

It outlives coordinators: whichever answers is asked, and until one does the last answer stays on
the screen with its age.
"""

import asyncio
import json
import signal
import sys
import time
from datetime import UTC, datetime
from typing import Any, Protocol

import aiohttp
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from fleet.cli.changes import changes, opening_line
from fleet.cli.fetching import Snapshot, fetch, lacking
from fleet.cli.output import make_console, printable, show
from fleet.cli.status import status_document
from fleet.cli.summary import screen, summarize
from fleet.cli.where import Fleet
from fleet.errors import FleetError

REFRESHES = 2
"""Of the screen, each second: the age of what it shows goes on while nobody answers."""

LATE = 3.0
"""So many intervals without an answer are called stale."""

ANSWER_SECONDS = 1.5


class Shower(Protocol):
    """Where it is shown."""

    def __enter__(self) -> "Shower": ...
    def __exit__(self, *_: object) -> None: ...

    def answered(self, snapshot: Snapshot) -> None:
        """A coordinator answered."""

    def silent(self, problem: str) -> None:
        """None did."""


class Screen:
    """A terminal: redrawn in place; what it showed last stays when it ends."""

    def __init__(self, console: Console, seconds: float) -> None:
        self._console, self._seconds = console, seconds
        self._snapshot: Snapshot | None = None
        self._shown: dict[str, Any] = {}
        self._at, self._problem = 0.0, ""
        self._live = Live(
            console=console,
            screen=True,
            refresh_per_second=REFRESHES,
            get_renderable=self._render,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._snapshot is not None:
            show(self._console, self._render())

    def answered(self, snapshot: Snapshot) -> None:
        """See `Shower.answered`."""
        shown = printable({"map": dict(snapshot.shard_map), "workers": list(snapshot.workers)})
        try:
            screen(shown["map"], shown["workers"], datetime.now(UTC), width=80, height=24)
        except (KeyError, TypeError, AttributeError) as error:
            raise lacking(error) from error
        self._shown, self._snapshot = shown, snapshot
        self._at, self._problem = time.monotonic(), ""
        if not self._live.is_started:
            self._live.start()

    def silent(self, problem: str) -> None:
        """See `Shower.silent`."""
        self._problem = problem

    def _render(self) -> RenderableType:
        snapshot = self._snapshot
        if snapshot is None:
            return Text()
        age = time.monotonic() - self._at
        foot = [self._foot(snapshot.answered_by, age)]
        if self._problem:
            problem = Text(printable(self._problem), "red", overflow="ellipsis", no_wrap=True)
            foot.append(problem)
        width, height = self._console.width, self._console.height
        whole = screen(
            self._shown["map"],
            self._shown["workers"],
            datetime.now(UTC),
            width=width,
            height=height - 2 * len(foot) - 1,
        )
        return Group(*foot, Text(), whole)

    def _foot(self, answered_by: str, age: float) -> Text:
        if age > LATE * self._seconds + ANSWER_SECONDS or self._problem:
            return Text(f"STALE: this is {age:.0f} s old, from {answered_by}", style="bold red")
        return Text(
            f"every {self._seconds:g} s; {age:.1f} s old, from {answered_by}; Ctrl-C ends",
            style="dim",
        )


class Lines:
    """No terminal: a line for each change.

    Args:
        as_json: each line is a whole status document with `at` and `changes`.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._before: Snapshot | None = None
        self._silent = False

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def answered(self, snapshot: Snapshot) -> None:
        """See `Shower.answered`."""
        now = datetime.now(UTC)
        try:
            if self._before is None:
                summary = summarize(snapshot.shard_map, snapshot.workers, now)
                said = [opening_line(summary)]
            else:
                said = changes(self._before, snapshot)
            if self._silent:
                said.insert(0, f"answered again by {snapshot.answered_by}")
            document = dict(status_document(snapshot, now))
        except (KeyError, TypeError, AttributeError) as error:
            raise lacking(error) from error
        self._before, self._silent = snapshot, False
        if self._as_json and said:
            self._write(json.dumps({**document, "at": _stamp(now), "changes": said}))
        elif said:
            version = document["summary"]["map"]
            for line in said:
                self._write(f"{_stamp(now)}  map {version}  {printable(line)}")

    def silent(self, problem: str) -> None:
        """See `Shower.silent`."""
        if self._silent:
            return
        self._silent = True
        now = _stamp(datetime.now(UTC))
        if self._as_json:
            error = {"code": "unreachable", "message": problem}
            self._write(json.dumps({"format": 1, "at": now, "error": error}))
        else:
            self._write(f"{now}  {printable(problem)}")

    def _write(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _stamp(now: datetime) -> str:
    return now.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


async def watch(fleet: Fleet, seconds: float, *, as_json: bool) -> int:
    """Until SIGINT (130) or SIGTERM (143).

    Raises:
        Unreachable: no coordinator answers to begin with.
        FleetError: one answers with something else.
    """
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[int] = loop.create_future()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped, number)
    console = make_console()
    shower: Shower = (
        Screen(console, seconds) if console.is_terminal and not as_json else Lines(as_json=as_json)
    )
    async with aiohttp.ClientSession() as http:
        api = fleet.api(http, timeout_seconds=ANSWER_SECONDS)
        first = await fetch(api)
        with shower:
            shower.answered(first)
            while not stopped.done():
                await asyncio.wait({stopped}, timeout=seconds)
                looking = asyncio.ensure_future(fetch(api))
                either: set[asyncio.Future[Any]] = {looking, stopped}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if not looking.done():
                    looking.cancel()
                    await asyncio.gather(looking, return_exceptions=True)
                    break
                try:
                    shower.answered(looking.result())
                except FleetError as error:
                    shower.silent(str(error))
    return stopped.result()


def _stop(stopped: "asyncio.Future[int]", number: int) -> None:
    if not stopped.done():
        stopped.set_result(128 + number)

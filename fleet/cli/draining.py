"""`epp-fleet drain` and `undrain`: a command for each worker, and, if asked, wait for its end."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import aiohttp

from fleet.cli.fetching import Snapshot, fetch, lacking
from fleet.cli.handing import Left, left, others_can
from fleet.cli.naming import with_guess
from fleet.cli.output import FORMAT, error_document, write_json
from fleet.cli.progress import shower
from fleet.cli.where import Fleet, environment, find_fleet, read_token
from fleet.errors import FleetError
from fleet.local.api import CoordinatorApi
from fleet.local.faults import Refused, Unreachable

HINTS = {
    401: "the token was not accepted; name the fleet's own in EPP_FLEET_TOKEN_FILE",
    503: "there is no leader at the moment; try again in a few seconds",
}
PATIENCE_SECONDS = 8.0
"""For a new leader: above twice the time that losing one takes."""

NOBODY = "no leader at the moment; waiting for the next one"
AGAIN_SECONDS = 0.5
NO_LEADER, NO_WORKER, CONFLICT = 503, 404, 409
LATER = "; try again"
"""How a conflict ends that is no word about the mark: the worker could not be given it now."""
ANSWER_SECONDS = 10.0


@dataclass(slots=True)
class Drained:
    """What came of it for one worker.

    Attributes:
        error: the command was refused.
        left: the last that is known of it; None = nobody looked.
        good: the command was taken, and what was waited for has come.
    """

    worker: str
    error: Refused | None = None
    left: Left | None = None
    good: bool = False

    def document(self) -> dict[str, Any]:
        """As JSON members."""
        error = None if self.error is None else error_document(self.error)["error"]
        known = None if self.left is None else self.left.document()
        return {"worker": self.worker, "ok": self.good, "left": known, "error": error}


def _later(error: Refused) -> bool:
    return error.status == CONFLICT and str(error).endswith(LATER)


async def _command(api: CoordinatorApi, path: str, token: str) -> None:
    """Send it; between two leaders, and while the leader does not reach the worker, wait."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return await api.command(path, token)
        except Refused as error:
            if not (error.status == NO_LEADER or _later(error)) or time.monotonic() >= deadline:
                raise
            why = str(error).removesuffix(LATER) + "; trying again" if _later(error) else NOBODY
        except Unreachable:
            # If a replica answers reads, it is only the leader that is gone.
            await api.shard_map()
            if time.monotonic() >= deadline:
                raise
            why = NOBODY
        if not told:
            told = True
            sys.stderr.write(f"epp-fleet: {why}\n")
        await asyncio.sleep(AGAIN_SECONDS)


async def _send(
    api: CoordinatorApi, worker: str, token: str, *, on: bool, wait: bool
) -> Refused | None:
    """Command one worker; what it was refused with."""
    action = "drain" if on else "undrain"
    try:
        await _command(api, f"/api/v1/workers/{quote(worker, safe='')}/{action}", token)
    except Refused as error:
        already = error.status == CONFLICT and not _later(error)
        if already and wait:
            return None  # what is waited for may still have to come
        explained = _explained(worker, error)
        if error.status == NO_WORKER:
            return await with_guess(api, explained, worker, of="workers")
        return _with_next(worker, explained) if already and on else explained
    return None


def _explained(worker: str, error: Refused) -> Refused:
    text = HINTS.get(error.status, str(error))
    shown = text if worker in text else f"{worker}: {text}"
    return Refused(shown, status=error.status, code=error.code)


def _with_next(worker: str, error: Refused) -> Refused:
    """It drains already: what may be wanted instead."""
    choices = (
        f"`epp-fleet drain {worker} --wait` waits until it is done, "
        f"`epp-fleet undrain {worker}` calls it off"
    )
    return Refused(f"{error}; {choices}", status=error.status, code=error.code)


def _remark(
    workers: Sequence[Mapping[str, Any]] | None, leaving: Sequence[str], *, on: bool
) -> str:
    if not on:
        return "takes pools again"
    if workers is None or others_can(workers, leaving):
        return "hands its pools to the others"
    return "is draining, but no other worker can take its pools: it keeps them until one can"


async def _all(fleet: Fleet, arguments: argparse.Namespace, *, on: bool) -> list[Drained]:
    token = read_token(fleet.token_file)
    names = list(dict.fromkeys(arguments.worker))
    as_json = arguments.output == "json"
    async with aiohttp.ClientSession() as http:
        api = fleet.api(http, timeout_seconds=ANSWER_SECONDS)
        before = await fetch(api) if arguments.wait else None
        found = [
            Drained(name, await _send(api, name, token, on=on, wait=arguments.wait))
            for name in names
        ]
        taken = [each for each in found if each.error is None]
        for each in taken:
            each.good = not arguments.wait
        if taken and not as_json and (on or not arguments.wait):
            workers = await _workers_if_known(api) if on else None
            for each in taken:
                tail = "" if arguments.wait else "; watch it with `epp-fleet status`"
                leaving = [one.worker for one in taken]
                sys.stdout.write(f"{each.worker} {_remark(workers, leaving, on=on)}{tail}\n")
            sys.stdout.flush()
        if taken and before is not None:
            await _wait(api, taken, before, arguments, on=on)
    return found


async def _workers_if_known(api: CoordinatorApi) -> Sequence[Mapping[str, Any]] | None:
    """The command was taken; who could take the pools is only a remark."""
    try:
        return list((await api.workers())["workers"])
    except (Unreachable, KeyError, TypeError):
        return None


async def _wait(
    api: CoordinatorApi,
    taken: Sequence[Drained],
    before: Snapshot,
    arguments: argparse.Namespace,
    *,
    on: bool,
) -> None:
    """Look until nothing is left of what was asked for, or the time is up."""
    deadline = time.monotonic() + arguments.timeout
    totals = {each.worker: left(before, each.worker).pools for each in taken}
    with shower(totals, quiet=arguments.output == "json", handing_over=on) as shown:
        while not all(each.good or _over(each) for each in taken):
            try:
                snapshot = await fetch(api)
                for each in taken:
                    each.left = left(snapshot, each.worker)
                    each.good = _done(each.left, on=on)
                    shown.now(each.left, done=each.good)
            except Unreachable as error:
                shown.silent(str(error))
            except (KeyError, TypeError) as error:
                raise lacking(error) from error
            rest = deadline - time.monotonic()
            if rest <= 0:
                return
            if not all(each.good or _over(each) for each in taken):
                await asyncio.sleep(min(AGAIN_SECONDS, rest))


def _done(now: Left, *, on: bool) -> bool:
    return now.handed_over if on else now.state == "alive"


def _over(each: Drained) -> bool:
    return each.left is not None and each.left.lost


def _complaint(each: Drained, arguments: argparse.Namespace) -> str:
    """Why it is not good."""
    if each.error is not None:
        return str(each.error)
    if each.left is None:
        return f"{each.worker}: nothing is known of it after {arguments.timeout:g} s"
    if each.left.lost:
        return f"{each.worker}: {each.left.text()}"
    return f"{each.worker}: not done after {arguments.timeout:g} s: {each.left.text()}"


def set_drain(arguments: argparse.Namespace, *, on: bool) -> int:
    """0 when the leader took the commands and, with --wait, all was handed over.

    Raises:
        SettingsError, Unreachable: see `find_fleet` and `read_token`.
        FleetError: a coordinator answers with something else.
    """
    fleet = find_fleet(arguments.coordinator, arguments.state_file, environment())
    try:
        found = asyncio.run(_all(fleet, arguments, on=on))
    except KeyboardInterrupt:
        if arguments.wait and on:
            sys.stderr.write("epp-fleet: the drain goes on; `epp-fleet undrain` calls it off\n")
        raise
    good = all(each.good for each in found)
    if arguments.output == "json":
        write_json(
            {
                "format": FORMAT,
                "action": "drain" if on else "undrain",
                "ok": good,
                "workers": [each.document() for each in found],
            }
        )
        return 0 if good else 1
    bad = [_complaint(each, arguments) for each in found if not each.good]
    if bad:
        raise FleetError("\n".join(bad))
    return 0


def drain(arguments: argparse.Namespace) -> int:
    """See `set_drain`."""
    return set_drain(arguments, on=True)


def undrain(arguments: argparse.Namespace) -> int:
    """See `set_drain`."""
    return set_drain(arguments, on=False)

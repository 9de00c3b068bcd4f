"""`epp-fleet local`: run a fleet until somebody stops it."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleet.errors import FleetError, SettingsError
from fleet.local.options import LocalOptions
from fleet.local.plan import Plan, make_plan
from fleet.local.running import LocalFleet, running_fleet
from fleet.local.signals import until_stopped
from fleet.local.state import Taken, claimed, remove_state, write_state
from fleet.local.world import Say
from fleet.settings.limits import masked_url


async def until_ready_or_lost(fleet: LocalFleet) -> str | None:
    """None when the fleet is ready, or the reason why it cannot be.

    Raises:
        FleetError: see `LocalFleet.wait_ready`.
    """
    ready = asyncio.ensure_future(fleet.wait_ready())
    try:
        either: set[asyncio.Future[Any]] = {ready, fleet.lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if fleet.lost.done():
            return fleet.lost.result()
        ready.result()
        return None
    finally:
        ready.cancel()
        await asyncio.gather(ready, return_exceptions=True)


def _introduce(fleet: LocalFleet, say: Say) -> None:
    state = fleet.state()
    lines = [("manifests", state.manifests), ("store", masked_url(state.redis))]
    lines += [(each.id, f"http://{each.http}/") for each in state.coordinators]
    lines += [
        (each.id, f"ext_proc {each.ext_proc}, metrics http://{each.http}/metrics")
        for each in state.workers
    ]
    if state.gateway is not None:
        lines.append(("gateway", f"http://{state.gateway}/<namespace>/<pool>/"))
    lines.append(("logs", f"{fleet.folder.logs}, until it stops"))
    width = max(len(name) for name, _ in lines)
    for name, text in lines:
        say(f"{name:<{width}}  {text}")


def what_starts(plan: Plan) -> str:
    """The first line of output."""
    options = plan.options
    parts = [_count(options.coordinators, "coordinator"), _count(options.workers, "worker")]
    parts += ["Envoy"] if options.gateway else []
    parts += ["6 sample pools"] if options.manifests is None else [f"pools of {options.manifests}"]
    return "starting a local fleet: " + ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


async def _run(plan: Plan, state_file: Path | None, environ: Mapping[str, str], say: Say) -> int:
    """Run it all; `state_file`: None = in the run folder."""
    say(what_starts(plan))
    async with running_fleet(plan, environ, say) as fleet:
        path = state_file or fleet.folder.root / "state.json"
        try:
            reason = await until_ready_or_lost(fleet)
            if reason is None:
                _introduce(fleet, say)
                write_state(path, fleet.state())
                known = state_file is not None and not plan.options.state_file_named
                say("look inside: epp-fleet status" + ("" if known else f" --state-file {path}"))
                say("ready")
                reason = await fleet.lost
            say(f"giving up: {reason}")
            return 1
        finally:
            remove_state(path, fleet.folder.root)


@contextlib.contextmanager
def _state_file(options: LocalOptions, say: Say) -> Iterator[Path | None]:
    """The state file, ours as long as we run; None = the usual place cannot be had.

    Raises:
        SettingsError: the user named it, and it cannot be had.
    """
    with contextlib.ExitStack() as stack:
        path: Path | None = options.state_file
        try:
            stack.enter_context(claimed(options.state_file))
        except (Taken, OSError) as error:
            text = (
                f"{options.state_file}: {error.strerror}" if isinstance(error, OSError) else error
            )
            if options.state_file_named:
                raise SettingsError([f"--state-file: {text}"]) from error
            say(f"{text}; the state of this one goes to its run folder")
            path = None
        yield path


def run_local(options: LocalOptions, environ: Mapping[str, str], say: Say) -> int:
    """Run until SIGINT or SIGTERM (0) or until the fleet is lost (1).

    Raises:
        SettingsError: something is wrong with options, settings, manifests or programs.
        FleetError, OSError: it could not be started.
    """
    plan = make_plan(options, environ)
    try:
        with _state_file(options, say) as path:
            code = asyncio.run(until_stopped(_run(plan, path, environ, say)))
    except OSError as error:
        raise FleetError(f"the fleet could not be started: {error}") from error
    if code is None:
        say("stopped")
        return 0
    return code

"""`epp-fleet local`: run a fleet until somebody stops it."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fleet.errors import FleetError
from fleet.local.options import LocalOptions
from fleet.local.plan import Plan, make_plan
from fleet.local.running import LocalFleet, running_fleet
from fleet.local.signals import until_stopped
from fleet.local.state import remove_state, write_state
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


def _introduce(fleet: LocalFleet, options: LocalOptions, say: Say) -> None:
    state = fleet.state()
    say(f"manifests  {state.manifests}")
    say(f"store      {masked_url(state.redis)}")
    for coordinator in state.coordinators:
        say(f"{coordinator.id:<10} http://{coordinator.http}/api/v1/map")
    for worker in state.workers:
        say(f"{worker.id:<10} ext_proc {worker.ext_proc}, metrics http://{worker.http}/metrics")
    if state.gateway is not None:
        say(f"gateway    http://{state.gateway}/<namespace>/<pool>/v1/chat/completions")
    say(f"state file {options.state_file}   (epp-fleet status)")


async def _run(plan: Plan, environ: Mapping[str, str], say: Say) -> int:
    options = plan.options
    async with running_fleet(plan, environ, say) as fleet:
        try:
            reason = await until_ready_or_lost(fleet)
            if reason is None:
                _introduce(fleet, options, say)
                write_state(options.state_file, fleet.state())
                say("ready")
                reason = await fleet.lost
            say(f"giving up: {reason}")
            return 1
        finally:
            remove_state(options.state_file, fleet.folder.root)


def run_local(options: LocalOptions, environ: Mapping[str, str], say: Say) -> int:
    """Run until SIGINT or SIGTERM (0) or until the fleet is lost (1).

    Raises:
        SettingsError: something is wrong with options, settings, manifests or programs.
        FleetError, OSError: it could not be started.
    """
    plan = make_plan(options, environ)
    try:
        code = asyncio.run(until_stopped(_run(plan, environ, say)))
    except OSError as error:
        raise FleetError(f"the fleet could not be started: {error}") from error
    if code is None:
        say("stopped")
        return 0
    return code

"""Which configuration a pool picks by, and the scheduler that is made of it.

A pool names a configuration by annotation; without one it has that called `default`, and where
nobody wrote that, the built-in one. A name that is not there, and a configuration that cannot be
used, leave a pool with what it has: a typing error must not change how anybody is served.
"""

import logging
from collections.abc import Callable, Mapping

from epp_worker.scheduling.faults import PluginFaults
from epp_worker.scheduling.plugin import PluginType
from epp_worker.scheduling.registry import BUILT_IN as BUILT_IN_TYPES
from epp_worker.scheduling.scheduler import PoolView, Scheduler
from fleet.model.identity import PoolRef
from fleet.model.pools import Pool
from fleet.picking.choice import NO_CONFIGS, Configs, choose
from fleet.picking.config import DEFAULT, PickerConfig

log = logging.getLogger(__name__)

MAX_TOLD = 4096
"""Pools whose last problem is remembered; when full, all may be told once more."""

NewScheduler = Callable[[Pool, PoolView, Scheduler | None], Scheduler]
"""Makes the scheduler of a pool, or returns the one that it has if that is right still."""


class Schedulers:
    """Makes schedulers by the newest configurations.

    Attributes:
        configs: the newest; set by who reads them.
        faults: of all plugins of this worker.
    """

    def __init__(self, types: Mapping[str, PluginType] = BUILT_IN_TYPES) -> None:
        self.configs: Configs = NO_CONFIGS
        self.faults = PluginFaults()
        self._types = types
        self._told: dict[PoolRef, str] = {}

    def scheduler(self, pool: Pool, view: PoolView, present: Scheduler | None) -> Scheduler:
        """See `NewScheduler`."""
        chosen = choose(pool, self.configs)
        if chosen.problem:
            self._tell(pool, chosen.problem, present)
        if present is not None and (present.config is chosen.config or chosen.problem):
            return present
        return self._made(chosen.config, pool, view, present)

    def _made(
        self, config: PickerConfig, pool: Pool, view: PoolView, present: Scheduler | None
    ) -> Scheduler:
        try:
            made = Scheduler(config, view, self._types, self.faults)
        except ValueError as error:
            self._tell(pool, f"{config.name}: {error}", present)
            return present or Scheduler(DEFAULT, view, self._types, self.faults)
        self._told.pop(pool.ref, None)
        if present is not None:
            log.info(
                "picker configuration taken", extra={"pool": str(pool.ref), "config": config.name}
            )
        return made

    def _tell(self, pool: Pool, problem: str, present: Scheduler | None) -> None:
        """Once for each pool and problem: every change of a pool asks again."""
        if self._told.get(pool.ref) == problem:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[pool.ref] = problem
        log.warning(
            "picker configuration not taken",
            extra={"pool": str(pool.ref), "problem": problem, "kept": _name(present)},
        )


def _name(scheduler: Scheduler | None) -> str:
    return DEFAULT.name if scheduler is None else scheduler.config.name

"""Plugins that fail: counted by plugin, logged once, and never a reason to lose a request."""

import logging
from collections import Counter
from collections.abc import Mapping

from fleet.model.identity import PoolRef
from fleet.telemetry import where_it_broke

log = logging.getLogger(__name__)

SLOW_SECONDS = 0.001
"""A call on the serving loop may take so long: every other request of the worker waits for it."""

MAX_REMEMBERED = 4096
"""(pool, plugin, kind) that were logged; when full, all may be logged once more."""


class PluginFaults:
    """Of one worker."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._logged: set[tuple[PoolRef, str, str]] = set()

    def counts(self) -> Mapping[str, int]:
        """Faults by the plugin's type."""
        return self._counts

    def raised(self, pool: PoolRef, plugin: str, type_: str, error: Exception) -> None:
        """A call ended in an exception, or answered with what is no answer.

        Where it broke is logged, not its text, which may quote a prompt.
        """
        self._counts[type_] += 1
        if self._is_news(pool, plugin, "raised"):
            log.error(
                "plugin failed: its vote does not count",
                extra={
                    "pool": str(pool),
                    "plugin": plugin,
                    "type": type_,
                    "error": type(error).__name__,
                    "stack": where_it_broke(error),
                },
            )

    def slow(self, pool: PoolRef, plugin: str, type_: str, seconds: float) -> None:
        """A call took too long."""
        self._counts[type_] += 1
        if self._is_news(pool, plugin, "slow"):
            log.warning(
                "plugin too slow: its vote does not count",
                extra={
                    "pool": str(pool),
                    "plugin": plugin,
                    "type": type_,
                    "took_ms": round(seconds * 1000, 3),
                    "allowed_ms": SLOW_SECONDS * 1000,
                },
            )

    def _is_news(self, pool: PoolRef, plugin: str, kind: str) -> bool:
        key = (pool, plugin, kind)
        if key in self._logged:
            return False
        if len(self._logged) >= MAX_REMEMBERED:
            self._logged.clear()
        self._logged.add(key)
        return True

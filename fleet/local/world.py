"""Pools and pods as the local fleet's own processes see them, and what is wrong with them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from fleet.clock import SystemClock
from fleet.local.ignored import ignored
from fleet.model import Pod, Pool
from fleet.sources.contract import Change, Kind, Problem
from fleet.sources.folder import FolderSource

Say = Callable[[str], None]


class World:
    """The manifests folder, followed.

    Args:
        changed: called after every change of a pool or pod.
    """

    def __init__(
        self, manifests: Path, *, poll_seconds: float, changed: Callable[[], None]
    ) -> None:
        self._poll_seconds = poll_seconds
        self._changed = changed
        self._source = FolderSource(manifests, poll_seconds=poll_seconds, clock=SystemClock())

    async def start(self) -> None:
        """Return when the first look at the folder is complete.

        Raises:
            SettingsError: there is no such folder.
        """
        await self._source.start()
        for kind in (Kind.POOL, Kind.POD):
            await self._source.watch(kind, self._on_change).wait_synced()

    def _on_change(self, change: Change) -> None:
        self._changed()

    def pools(self) -> list[Pool]:
        """All pools as of now."""
        return [o for o in self._source.objects(Kind.POOL).values() if isinstance(o, Pool)]

    def pods(self) -> list[Pod]:
        """All pods as of now."""
        return [o for o in self._source.objects(Kind.POD).values() if isinstance(o, Pod)]

    async def report(self, say: Say) -> None:
        """Tell of documents that are skipped and annotations that are ignored, and of their repair,
        until cancelled."""
        told: set[Problem] = set()
        told_ignored: dict[str, str] = {}
        while True:
            vain = ignored(self.pools())
            for name in sorted(vain.keys() - told_ignored.keys()):
                say(f"{name}: {vain[name]}")
            for name in sorted(told_ignored.keys() - vain.keys()):
                say(f"{name}: no more")
            told_ignored = vain
            now = set(self._source.problems())
            for problem in sorted(now - told, key=lambda p: (p.where, p.message)):
                say(f"manifest skipped: {problem.where}: {problem.message}")
            for problem in sorted(told - now, key=lambda p: (p.where, p.message)):
                say(f"manifest problem gone: {problem.where}")
            told = now
            await asyncio.sleep(self._poll_seconds)

    async def close(self) -> None:
        """Stop following."""
        await self._source.close()

"""Tasks that must live as long as the process: one that ends makes it not ready, loudly."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Supervision:
    """Keeps every task's reference and remembers the first that died."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False
        self.failed: str | None = None
        """Which task died, or None while all live."""

    def run(self, loop: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a loop that must not end."""
        task = asyncio.create_task(loop, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._closing:
            return
        log.critical(
            "a task that must live has died", extra={"task": task.get_name()}, exc_info=error
        )
        self.failed = self.failed or task.get_name()

    async def close(self) -> None:
        """End all tasks, the latest first, each awaited before the next."""
        self._closing = True
        for task in reversed(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

"""Keeps hold of every task: one that dies unexpectedly takes the process down, loudly."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Supervisor:
    """Starts tasks and watches over them.

    `run` is for loops that must live as long as the process, `spawn` for work that ends. Either
    one's exception, and a loop's end, is the process' end: `fatal` is called once, with the reason.
    """

    def __init__(self, fatal: Callable[[str], None]) -> None:
        self._fatal = fatal
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False
        self.failed: str | None = None
        """Why this process is no longer fine; None while it is."""

    def run(self, loop: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a loop that must not end."""
        task = self._start(loop, name)
        task.add_done_callback(self._loop_ended)
        return task

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start work that ends by itself."""
        task = self._start(work, name)
        task.add_done_callback(self._work_ended)
        return task

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        if self._closing:
            return
        error = None if task.cancelled() else task.exception()
        self._fail(task.get_name(), error)

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        if self._closing or task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._fail(task.get_name(), error)

    def _fail(self, name: str, error: BaseException | None) -> None:
        log.critical("a task that must live has died", extra={"task": name}, exc_info=error)
        if self.failed is None:
            self.failed = f"task {name!r} has died"
            self._fatal(self.failed)

    async def close(self) -> None:
        """Cancel every task and wait for it."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for task, result in zip(
            tasks, await asyncio.gather(*tasks, return_exceptions=True), strict=True
        ):
            if isinstance(result, Exception):
                log.error(
                    "a task failed while stopping",
                    extra={"task": task.get_name()},
                    exc_info=result,
                )

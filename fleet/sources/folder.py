"""Pools, pods and what belongs to them from a folder of manifests, looked at again and again.

No inotify: a look lists and stats, which also works on network and overlay file systems and on
folders that are replaced as a whole. Files are parsed in a thread, off the event loop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path

from fleet.clock import Clock
from fleet.errors import SettingsError
from fleet.sources.contract import Kind, Listener, Object, ObjectKey, Problem, Watch
from fleet.sources.local_copy import LocalCopy
from fleet.sources.manifests import Snapshot, changes
from fleet.sources.scan import ManifestFolder

log = logging.getLogger(__name__)

_REST_RATIO = 4
"""A look that takes long is followed by a rest of this many times its length: <= 20 % of a core."""


class FolderSource:
    """`fleet.sources.contract.Source` over `*.yaml`, `*.yml` and `*.json` below a folder.

    Names that begin with a dot are left out. What vanishes is believed at the second look.
    """

    def __init__(self, folder: Path, *, poll_seconds: float, clock: Clock) -> None:
        self._path = folder
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._folder = ManifestFolder(folder)
        self._copy = LocalCopy()
        self._snapshot = Snapshot()
        self._failure: Problem | None = None
        self._good_at = clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look.

        Raises:
            SettingsError: there is no such folder.
        """
        if not await asyncio.to_thread(self._path.is_dir):
            raise SettingsError([f"source.manifests: no such folder: {self._path}"])
        self._good_at = self._clock.monotonic()
        self._task = asyncio.create_task(self._run(), name="manifests")

    def watch(self, kind: Kind, listener: Listener, *, namespace: str | None = None) -> Watch:
        """See `Source.watch`; the first list comes on the loop's next turn."""
        return self._copy.subscribe(kind, listener, namespace)

    def objects(self, kind: Kind, *, namespace: str | None = None) -> Mapping[ObjectKey, Object]:
        """See `Source.objects`."""
        return self._copy.objects(kind, namespace)

    def problems(self) -> tuple[Problem, ...]:
        """See `Source.problems`."""
        return (
            (self._failure, *self._snapshot.problems)
            if self._failure
            else (self._snapshot.problems)
        )

    def age(self) -> float:
        """See `Source.age`; before the first complete look: since `start`."""
        return self._clock.monotonic() - self._good_at

    async def close(self) -> None:
        """See `Source.close`."""
        self._copy.close()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            began = self._clock.monotonic()
            try:
                await self._look(began)
            except Exception:
                # Shows as a problem and as a growing age; the last good state stays.
                log.exception("manifests look failed", extra={"folder": str(self._path)})
                self._failure = Problem(
                    str(self._path), "the look at the folder failed; see the log"
                )
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(self._poll_seconds, _REST_RATIO * took))

    async def _look(self, began: float) -> None:
        old = self._snapshot
        look = await asyncio.to_thread(self._folder.look, self._clock.wall())
        changed = []
        if look.snapshot is not old:
            changed = await asyncio.to_thread(changes, old, look.snapshot)
            self._report(old, look.snapshot)
        self._snapshot = look.snapshot
        self._failure = None
        if look.complete:
            self._good_at = began
        self._copy.replace(look.snapshot.objects, changed, complete=look.complete)

    def _report(self, old: Snapshot, new: Snapshot) -> None:
        before, after = set(old.problems), set(new.problems)
        for problem in sorted(after - before, key=lambda each: each.where):
            log.warning(
                "manifest skipped", extra={"where": problem.where, "problem": problem.message}
            )
        for problem in sorted(before - after, key=lambda each: each.where):
            log.info("manifest problem gone", extra={"where": problem.where})


def check_folder(folder: Path) -> list[Problem]:
    """All that is wrong with a folder of manifests, for a check before anything is started.

    Finds what cannot be listed, read or parsed, each malformed object, objects that occur twice,
    and a folder without any InferencePool.
    """
    if not folder.is_dir():
        return [Problem(str(folder), "no such folder; give a folder of Kubernetes manifests")]
    snapshot = ManifestFolder(folder).look(wall=0.0).snapshot
    problems = list(snapshot.problems)
    if not snapshot.objects[Kind.POOL]:
        problems.append(
            Problem(str(folder), "no usable InferencePool in any *.yaml, *.yml or *.json; add one")
        )
    return problems

"""The folder of picker configurations, looked at again and again.

`NAME.yaml`, `.yml` or `.json` is the configuration NAME. One that cannot be used leaves the last
good one of that name in force; one whose file is gone for two looks is gone. A ConfigMap mounted as
files is replaced as a whole through a link, which a look follows like any other change.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from fleet.clock import Clock
from fleet.errors import SettingsError
from fleet.picking.choice import ConfigProblem, Configs
from fleet.picking.config import BUILT_IN, PickerConfig
from fleet.picking.decode import MAX_BYTES, decode
from fleet.picking.extensions import Extensions, load_extensions
from fleet.settings.picking import PickingSettings

log = logging.getLogger(__name__)

SUFFIXES = (".yaml", ".yml", ".json")
MAX_FILES = 1000


class ConfigFolder:
    """Remembers files between looks. Blocking; one look at a time."""

    def __init__(self, folder: Path, extensions: Extensions, *, experimental: bool) -> None:
        self._folder = folder
        self._extensions = extensions
        self._experimental = experimental
        self._seen: dict[str, bytes] = {}
        self._good: dict[str, PickerConfig] = {}
        self._bad: dict[str, ConfigProblem] = {}
        self._gone: set[str] = set()
        self._configs = Configs(folder=str(folder))

    def look(self) -> Configs:
        """What the folder holds now; the same object as long as nothing has changed."""
        try:
            found = self._read()
        except OSError as error:
            reason = f"cannot be read: {error.strerror or error}; what it said stays good"
            return self._report({"": ConfigProblem("", str(self._folder), (reason,))})
        for name, (file, data) in found.items():
            if self._seen.get(name) != data:
                self._seen[name] = data
                self._adopt(name, file, data)
        self._forget(set(found))
        return self._report({})

    def _read(self) -> dict[str, tuple[str, bytes]]:
        found: dict[str, tuple[str, bytes]] = {}
        for path in sorted(self._folder.iterdir())[: 10 * MAX_FILES]:
            if path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file():
                with path.open("rb") as file:
                    found.setdefault(path.stem, (path.name, file.read(MAX_BYTES + 1)))
            if len(found) >= MAX_FILES:
                break
        return found

    def _adopt(self, name: str, file: str, data: bytes) -> None:
        try:
            if name == BUILT_IN:
                raise SettingsError([f"{BUILT_IN} is no name for a configuration; rename the file"])
            self._good[name] = decode(
                data.decode("utf-8-sig"),
                name=name,
                experimental=self._experimental,
                kinds=self._extensions.kinds,
            )
            self._bad.pop(name, None)
        except UnicodeDecodeError as error:
            self._bad[name] = ConfigProblem(name, file, (f"byte {error.start} is no UTF-8",))
        except SettingsError as error:
            self._bad[name] = ConfigProblem(name, file, error.problems)

    def _forget(self, present: set[str]) -> None:
        """A writer may be about to put a file back: gone is who is gone twice."""
        missing = set(self._seen) - present
        for name in missing & self._gone:
            del self._seen[name]
            self._good.pop(name, None)
            self._bad.pop(name, None)
        self._gone = missing

    def _report(self, faults: dict[str, ConfigProblem]) -> Configs:
        lines = self._extensions.problems
        packages = (ConfigProblem("", "installed packages", lines),) if lines else ()
        problems = (*faults.values(), *packages, *self._bad.values())
        if self._good != self._configs.good or problems != self._configs.problems:
            self._configs = Configs(dict(self._good), problems, str(self._folder))
        return self._configs


class ConfigSource:
    """Looks at the folder for as long as `run` lasts.

    Attributes:
        extensions: plugin types that packages bring.
        configs: as last seen.
    """

    def __init__(self, settings: PickingSettings, clock: Clock) -> None:
        """Look for plugins and, if there is a folder, into it: once, blocking.

        Raises:
            SettingsError: there is no such folder.
        """
        self.extensions = load_extensions()
        self.configs = Configs()
        self._clock = clock
        self._poll_seconds = settings.poll_seconds
        self._changed: list[Callable[[], None]] = []
        self._folder: ConfigFolder | None = None
        for line in self.extensions.problems:
            log.warning("plugin not taken", extra={"problem": line})
        if settings.configs_folder:
            path = Path(settings.configs_folder)
            if not path.is_dir():
                raise SettingsError([f"picking.configs_folder: no such folder: {path}"])
            self._folder = ConfigFolder(
                path, self.extensions, experimental=settings.allow_experimental
            )
            self._take(self._folder.look())

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` on the loop whenever `configs` is another one."""
        self._changed.append(listener)

    async def run(self) -> None:
        """Look until cancelled; returns at once if there is no folder."""
        while self._folder is not None:
            await self._clock.sleep(self._poll_seconds)
            self._take(await asyncio.to_thread(self._folder.look))

    def _take(self, configs: Configs) -> None:
        if configs is self.configs:
            return
        before = set(self.configs.problems)
        self.configs = configs
        for problem in configs.problems:
            if problem not in before:
                log.warning(
                    "picker configuration is wrong",
                    extra={"file": problem.file, "problem": "; ".join(problem.lines)[:2000]},
                )
        log.info(
            "picker configurations read",
            extra={"folder": configs.folder, "good": sorted(configs.good)},
        )
        for listener in self._changed:
            listener()

"""Which configuration a pool asks for."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.model.pools import Pool
from fleet.picking.config import DEFAULT, PickerConfig

PROFILE = "epp-fleet.dev/profile"
"""Annotation of a pool: the name of a picker configuration, which is that of its file."""

DEFAULT_NAME = "default"
"""The configuration of pools that name none, if there is one of this name."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A file that could not be used; what it said before stays good.

    Attributes:
        name: of the configuration; "" where no single one is meant.
        lines: what is wrong, a line each.
    """

    name: str
    file: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Configs:
    """All configurations of a fleet.

    Attributes:
        good: the newest that could be used, by name.
        problems: of the files as they are now.
        folder: where they are read from; "" = nowhere.
    """

    good: Mapping[str, PickerConfig] = field(default_factory=dict)
    problems: tuple[ConfigProblem, ...] = ()
    folder: str = ""


NO_CONFIGS = Configs()


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a pool picks by.

    Attributes:
        problem: why it is not what the pool asks for, or not the newest; "" = it is.
    """

    config: PickerConfig
    problem: str = ""


def choose(pool: Pool, configs: Configs) -> Chosen:
    """What `pool` picks by, if it picks by nothing yet."""
    asked = pool.annotations.get(PROFILE, "").strip()
    name = asked or DEFAULT_NAME
    bad = next((each for each in configs.problems if each.name == name), None)
    found = configs.good.get(name)
    if found is not None:
        return Chosen(found, "" if bad is None else _bad(bad, "its last good form is used"))
    if bad is not None:
        return Chosen(DEFAULT, _bad(bad, "it was never good"))
    if asked:
        where = configs.folder or "picking.configs_folder is not set"
        return Chosen(
            DEFAULT,
            f"{PROFILE}: no configuration is called {asked[:80]!r} ({where}); "
            "a worker that picked by another before keeps it",
        )
    return Chosen(DEFAULT)


def _bad(problem: ConfigProblem, instead: str) -> str:
    more = f" (and {len(problem.lines) - 1} more)" if len(problem.lines) > 1 else ""
    first = problem.lines[0] if problem.lines else "cannot be used"
    return f"{problem.file}: {first}{more}; {instead}"

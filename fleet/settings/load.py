"""Read, merge and check settings: file, then environment, then flags; all problems at once."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fleet.errors import SettingsError
from fleet.settings import checks
from fleet.settings.fields import Value, all_fields, build, unknown
from fleet.settings.file import Raw, read_file
from fleet.settings.model import Settings

PREFIX = "EPP_FLEET_"


def _from_environ(environ: Mapping[str, str]) -> Iterator[Raw]:
    for name in sorted(environ):
        if not name.startswith(PREFIX):
            continue
        section, separator, field = name.removeprefix(PREFIX).lower().partition("__")
        path = f"{section}.{field}" if separator else section
        if separator or path in all_fields():
            yield Raw(path, environ[name], f"environment {name}", from_text=True)


def settings_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that `load_settings` takes for settings, in order."""
    return tuple(raw.origin.removeprefix("environment ") for raw in _from_environ(environ))


def _from_flags(flags: Mapping[str, str]) -> Iterator[Raw]:
    for path, text in flags.items():
        yield Raw(path, text, "command line", from_text=True)


def _line(raw: Raw, problem: str) -> str:
    return f"{raw.path}: {problem} ({raw.origin})"


def _check(found: Iterable[Raw]) -> tuple[dict[str, Value], list[str], set[str]]:
    """Values by path, problems, and the paths that have one."""
    values: dict[str, Value] = {}
    problems: list[str] = []
    bad: set[str] = set()
    for raw in found:
        field = all_fields().get(raw.path)
        try:
            if raw.problem is not None:
                raise ValueError(raw.problem)
            if field is None:
                raise ValueError(unknown(raw.path))
            values[raw.path] = field.read(raw.value, from_text=raw.from_text)
        except ValueError as error:
            problems.append(_line(raw, str(error)))
            bad.add(raw.path)
    return values, problems, bad


def load_settings(
    path: Path | None,
    environ: Mapping[str, str],
    flags: Mapping[str, str],
) -> Settings:
    """Merge file, environment and flags (later wins) and check the whole.

    Every value is checked, also one that a later layer replaces: it would bite when that layer
    goes. The cross-checks leave out rules about fields that are wrong by themselves.

    Args:
        path: the YAML file, or None for none.
        environ: looked at for `EPP_FLEET_<SECTION>__<FIELD>` (`EPP_FLEET_REDIS__URL`) and
            `EPP_FLEET_FLEET`; other `EPP_FLEET_*` names that are not settings are left alone.
        flags: field path -> text (`{"worker.ext_proc_port": "9002"}`).

    Raises:
        SettingsError: one line per bad field, starting with its path.
    """
    problems: list[str] = []
    found: list[Raw] = []
    if path is not None:
        try:
            found += read_file(path)
        except SettingsError as error:
            problems += error.problems
    found += _from_environ(environ)
    found += _from_flags(flags)
    values, field_problems, bad = _check(found)
    problems += field_problems
    settings = build(values)
    problems += [
        f"{finding.fields[0]}: {finding.message}"
        for finding in checks.check(settings)
        if bad.isdisjoint(finding.fields)
    ]
    if problems:
        raise SettingsError(problems)
    return settings

"""The fields of `Settings`, found by walking its dataclasses: there is no second list to keep.

A field's path is `section.field`, or just `field` at the top (`fleet`).
"""

import dataclasses
import difflib
import functools
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.settings.limits import Limit, shown
from fleet.settings.model import Settings

Value = bool | int | float | str

_KINDS: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}
_INT = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")


@dataclass(frozen=True, slots=True)
class Field:
    """One setting: where it stands, what it may be and what it is if nobody says otherwise."""

    path: str
    kind: type
    limit: Limit | None
    default: Value

    @property
    def section(self) -> str:
        """The section's name; empty at the top."""
        return self.path.rpartition(".")[0]

    @property
    def name(self) -> str:
        """The name within its section."""
        return self.path.rpartition(".")[2]

    def wanted(self) -> str:
        """What a value must look like, with its unit and an example."""
        unit = self.name.rpartition("_")[2]
        of = f" of {unit}" if unit in ("seconds", "bytes") else ""
        example = f'"{self.default}"' if self.kind is str else self.default
        return f"must be {_KINDS[self.kind]}{of}, such as {example}"

    def read(self, raw: object, *, from_text: bool) -> Value:
        """The value that `raw` stands for.

        Args:
            from_text: `raw` is text of the environment or the command line, so numbers are text.

        Raises:
            ValueError: what is wrong, with the value and what to do.
        """
        if raw is None:
            raise ValueError(f"has no value; {self.wanted()}, or remove the line")
        value = _from_text(self.kind, str(raw)) if from_text else _from_yaml(self.kind, raw)
        if value is None:
            raise ValueError(f"{self.wanted()}; got {_shown(raw, self.limit, from_text)}")
        problem = self.limit.problem(value) if self.limit else None
        if problem is not None:
            raise ValueError(f"{problem}; got {shown(value, self.limit)}")
        return value


def _from_text(kind: type, text: str) -> Value | None:
    stripped = text.strip()
    if kind is str:
        return text
    if kind is bool:
        return {"true": True, "false": False}.get(stripped.lower())
    if kind is int:
        return int(stripped) if len(stripped) < 40 and _INT.fullmatch(stripped) else None
    try:
        return float(stripped)
    except ValueError:
        return None


def _from_yaml(kind: type, raw: object) -> Value | None:
    if kind is float and isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw) if abs(raw) < 1e300 else None
    if type(raw) is kind:
        return typing.cast(Value, raw)
    return None


def _shown(raw: object, limit: Limit | None, from_text: bool) -> str:
    """A value of the wrong kind: with a word for the kind where the value alone would mislead."""
    if isinstance(raw, Mapping):
        return "a mapping"
    if isinstance(raw, list | tuple):
        return "a list"
    if isinstance(raw, str):
        return shown(raw, limit) if from_text else f"the text {shown(raw, limit)}"
    if isinstance(raw, bool):
        return f"{str(raw).lower()} (yes, no, on and off are true or false to YAML: quote them)"
    if isinstance(raw, int | float):
        return f"the number {shown(raw, limit)}"
    return f"a {type(raw).__name__}"


def _limit_of(hint: object) -> tuple[type, Limit | None]:
    if typing.get_origin(hint) is typing.Annotated:
        kind, limit = typing.get_args(hint)[:2]
        return kind, limit
    return typing.cast(type, hint), None


def _walk(section: type, prefix: str) -> list[Field]:
    hints = typing.get_type_hints(section, include_extras=True)
    found: list[Field] = []
    for field in dataclasses.fields(section):
        kind, limit = _limit_of(hints[field.name])
        if dataclasses.is_dataclass(kind):
            found += _walk(kind, f"{prefix}{field.name}.")
        else:
            default = typing.cast(Value, field.default)
            found.append(Field(f"{prefix}{field.name}", kind, limit, default))
    return found


@functools.cache
def all_fields() -> Mapping[str, Field]:
    """Every field by its path, in the order of the dataclasses."""
    return {field.path: field for field in _walk(Settings, "")}


@functools.cache
def sections() -> Mapping[str, type]:
    """Every section's name and dataclass, in order; the top is not among them."""
    hints: dict[str, type] = typing.get_type_hints(Settings)
    return {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}


def build(values: Mapping[str, Value]) -> Settings:
    """Settings with these values by path, and defaults for the rest."""
    by_section: dict[str, dict[str, typing.Any]] = {}
    for path, value in values.items():
        section, _, name = path.rpartition(".")
        by_section.setdefault(section, {})[name] = value
    top = by_section.pop("", {})
    parts = {name: sections()[name](**given) for name, given in by_section.items()}
    return Settings(**top, **parts)


def unknown(path: str) -> str:
    """A hint for a path that is no field: the nearest that is one."""
    section, _, name = path.rpartition(".")
    if section and section not in sections():
        near = difflib.get_close_matches(section, list(sections()), n=1)
        return _hint("section", "", near, list(sections()))
    elsewhere = [field.path for field in all_fields().values() if field.name == name]
    if elsewhere:
        return _hint("setting", "", elsewhere, [])
    names = [field.name for field in all_fields().values() if field.section == section]
    names += [] if section else list(sections())
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    return _hint("setting", f"{section}." if section else "", near, names)


def _hint(what: str, prefix: str, near: list[str], names: list[str]) -> str:
    if near:
        return f"unknown {what}; did you mean {prefix}{near[0]}?"
    return f"unknown {what}; known here: {', '.join(sorted(names))}"

"""The settings file: YAML of exactly two levels, read with line numbers and without surprises.

A key that stands twice is an error (YAML libraries silently take the last). Values of unknown keys
are never quoted: they may be misplaced passwords.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from fleet.errors import SettingsError
from fleet.settings.fields import sections

_MAX_BYTES = 1024 * 1024
_QUOTED = re.compile(r"'[^']{2,}'|\"[^\"]{2,}\"")


@dataclass(frozen=True, slots=True)
class Raw:
    """One value as it was found, not checked yet.

    Attributes:
        origin: where it stands, for messages.
        from_text: it is text of the environment or the command line.
        problem: it could not even be read; `value` is None then.
    """

    path: str
    value: object
    origin: str
    from_text: bool = False
    problem: str | None = None


def _text_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise SettingsError([f"{path}: longer than {_MAX_BYTES} bytes, so no settings file"])
        return data.decode()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise SettingsError([f"{path}: the settings file cannot be read: {reason}"]) from None
    except UnicodeDecodeError as error:
        raise SettingsError([f"{path}: not UTF-8 at byte {error.start}"]) from None


def _yaml_problem(path: Path, error: yaml.YAMLError) -> SettingsError:
    """The place and the kind of a YAML error, without any text of the file."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return SettingsError([f"{path}: not valid YAML: a character that YAML does not allow"])
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    what = _QUOTED.sub("...", error.problem or "syntax error")
    return SettingsError([f"{path}: not valid YAML: {place}{what}"])


class _Reader:
    """Walks one document's nodes."""

    def __init__(self, path: Path, loader: yaml.SafeLoader) -> None:
        self._path = path
        self._loader = loader

    def _raw(self, path: str, node: yaml.Node, problem: str | None = None) -> Raw:
        value: object = None
        if problem is None:
            try:
                value = self._loader.construct_object(node, deep=True)
            except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
                problem = "not a plain YAML value; write text, a number, true or false"
        return Raw(path, value, self._origin(node), problem=problem)

    def _origin(self, node: yaml.Node) -> str:
        return f"{self._path}:{node.start_mark.line + 1}"

    def section(self, node: yaml.MappingNode, prefix: str) -> Iterator[Raw]:
        """The values of one mapping, of its sections too."""
        lines: dict[str, int] = {}
        for key_node, _ in node.value:
            name = str(key_node.value)
            line = key_node.start_mark.line + 1
            if name in lines:
                twice = f"stands twice, first on line {lines[name]}; remove one"
                yield self._raw(f"{prefix}{name}", key_node, twice)
            lines.setdefault(name, line)
        self._loader.flatten_mapping(node)
        for key_node, value_node in node.value:
            yield from self._entry(f"{prefix}{key_node.value}", value_node, top=not prefix)

    def _entry(self, path: str, node: yaml.Node, *, top: bool) -> Iterator[Raw]:
        if not (top and path in sections()):
            yield self._raw(path, node)
        elif isinstance(node, yaml.MappingNode):
            yield from self.section(node, f"{path}.")
        elif node.tag != "tag:yaml.org,2002:null":
            yield self._raw(path, node, "is a section; indent its settings below it")


def read_file(path: Path) -> list[Raw]:
    """All values of the settings file, in order.

    Raises:
        SettingsError: the file as a whole cannot be used; names it.
    """
    text = _text_of(path)
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            hint = "write at least one setting, or leave the file out to run on the defaults"
            raise SettingsError([f"{path}: the settings file is empty; {hint}"])
        if not isinstance(node, yaml.MappingNode):
            raise SettingsError([f"{path}: must be a mapping of sections such as `redis:`"])
        return list(_Reader(path, loader).section(node, ""))
    except yaml.YAMLError as error:
        raise _yaml_problem(path, error) from None
    except RecursionError:
        raise SettingsError([f"{path}: nested too deeply for a settings file"]) from None
    finally:
        if loader is not None:
            loader.dispose()

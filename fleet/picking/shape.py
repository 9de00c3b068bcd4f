"""Plain values into structs, with complaints that a person can act on: path, what it must be, what
it is.
"""

import difflib
import re
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_PLACE = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|(\[\.\.\.\])")
_EXPECTED = re.compile(r"^Expected `(?P<want>[^`]+)`(?P<bound>[^,]*)(?:, got `[^`]+`)?$")
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.+)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<name>.+)`$")
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def brief(value: object) -> str:
    """A value as complaints quote it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    text = text if len(text) <= 60 else f"{text[:60]}..."
    return f'"{text}"' if isinstance(value, str) else text


def convert(raw: object, kind: type[T], path: str, problems: list[str]) -> T | None:
    """`raw` as `kind`; None, and a line more in `problems`, if it is no such thing.

    Args:
        path: where `raw` stands, for the line.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        problems.append(_complaint(raw, kind, path, str(error)))
        return None


def known_fields(raw: object, kind: type[msgspec.Struct], problems: list[str]) -> object:
    """A mapping without the fields that `kind` lacks, each a line in `problems`; so that one of
    them hides no other complaint. What is no mapping is returned as it is."""
    if not isinstance(raw, dict):
        return raw
    known = {field.encode_name for field in msgspec.structs.fields(kind)}
    extra = [str(name) for name in raw if name not in known]
    problems.extend(f"{name[:60]}: unknown field{_nearest(name, kind, '')}" for name in extra[:20])
    return {name: value for name, value in raw.items() if name in known}


def _complaint(raw: object, kind: type[Any], path: str, message: str) -> str:
    found = _PLACE.match(message)
    what, inner = (found["what"], found["path"] or "") if found else (message, "")
    where = (path + inner).lstrip(".")
    unknown = _UNKNOWN.match(what)
    if unknown is not None:
        name = unknown["name"]
        return f"{_under(where, name)}: unknown field{_nearest(name, kind, inner)}"
    missing = _MISSING.match(what)
    if missing is not None:
        return f"{_under(where, missing['name'])}: is missing"
    value = brief(_at(raw, inner))
    expected = _EXPECTED.match(what)
    if expected is None:
        return f"{where}: {what[:1].lower()}{what[1:]}" + (
            "" if value in what or value == "a mapping" else f", is {value}"
        )
    wants = [each for each in expected["want"].split(" | ") if each != "null"]
    wanted = " or ".join(_WORDS.get(each, each) for each in wants)
    bound = _bound(expected["bound"].strip())
    problem = f"must be {wanted}{bound}, is {value}"
    return f"{where}: {problem}" if where else problem


def _bound(text: str) -> str:
    if text == "of length >= 1":
        return " that is not empty"
    return f" {text}".replace(".0", "") if text else ""


def _under(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _nearest(name: str, kind: type[Any], inner: str) -> str:
    if inner or not issubclass(kind, msgspec.Struct):
        return ""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else f"; known: {', '.join(known) or 'none'}"


def _at(raw: object, path: str) -> object:
    value = raw
    for name, index, _any in _STEP.findall(path):
        if name and isinstance(value, dict):
            value = value.get(name)
        elif index and isinstance(value, list) and int(index) < len(value):
            value = value[int(index)]
        else:
            return None
    return value

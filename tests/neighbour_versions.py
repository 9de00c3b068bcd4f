"""What a neighbouring version writes: today's documents without what came later, or with more.

There is no older release yet. So the version before is today's, with every field absent that is
newer than the first form of its struct (`LATER`); the version after says `FORMAT + 1`, and every
struct of it has a field that we have never heard of.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from fleet.control.messages import FORMAT

Change = Callable[[type, dict[str, Any]], dict[str, Any]]

LATER: Mapping[str, str] = {
    "Assign": "others peers",
    "DeadMember": "why",
    "LeaderHello": "deltas",
    "MapUpdate": "part",
    "Member": "applied",
    "MemberStatus": "why",
    "Move": "why",
    "Report": "partial gone",
    "WorkerHello": "deltas",
    "_MemberDocument": "applied",
}
"""Fields by struct that are newer than its first form. Each has a default: version N-1 does not
send it, and must be understood without."""

STRANGE = "of_a_later_version"


class Version(StrEnum):
    """Whose documents."""

    BEFORE = "before"
    AFTER = "after"


def before(kind: type, document: dict[str, Any]) -> dict[str, Any]:
    """The struct as its first form had it."""
    later = LATER.get(kind.__name__, "").split()
    return {name: value for name, value in document.items() if name not in later}


def after(kind: type, document: dict[str, Any]) -> dict[str, Any]:
    """The struct as a later version might have it."""
    found = {**document, STRANGE: {"a": [1, None]}}
    if "format" in found:
        found["format"] = FORMAT + 1
    return found


CHANGES: Mapping[Version, Change] = {Version.BEFORE: before, Version.AFTER: after}


def is_struct(kind: Any) -> bool:
    """Whether it is written as a map of its fields: such a kind may gain some."""
    return isinstance(kind, type) and (
        issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)
    )


def is_list(kind: Any) -> bool:
    """Whether it is a struct that is written as a list: it gains fields at its end."""
    return (
        isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and (kind.__struct_config__.array_like)
    )


def is_row(kind: Any) -> bool:
    """Whether it is written as a list of its fields: such a kind is closed."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def rewritten(value: Any, hint: Any, change: Change) -> Any:
    """A decoded document of type `hint` with `change` applied to every struct in it."""
    if value is None:
        return None
    if is_list(hint):
        hints = get_type_hints(hint)
        named = dict(zip(hints, value, strict=True))
        parts = {name: rewritten(part, hints[name], change) for name, part in named.items()}
        return list(change(hint, parts).values())
    if is_struct(hint):
        hints = get_type_hints(hint)
        parts = {
            name: rewritten(part, hints[name], change) if name in hints else part
            for name, part in value.items()
        }
        return change(hint, parts)
    if is_row(hint):
        kinds = get_type_hints(hint)
        return [
            rewritten(part, kinds[name], change)
            for name, part in zip(hint._fields, value, strict=True)
        ]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (typing.Union, UnionType):
        return rewritten(value, _member_of(arguments, value), change)
    if origin is not None and issubclass(origin, Mapping):
        return {key: rewritten(part, arguments[1], change) for key, part in value.items()}
    if origin is tuple and Ellipsis not in arguments:
        return [rewritten(*pair, change) for pair in zip(value, arguments, strict=True)]
    if origin is not None and issubclass(origin, Sequence):
        return [rewritten(part, arguments[0], change) for part in value]
    return value


def _member_of(kinds: tuple[Any, ...], value: Any) -> Any:
    kinds = tuple(kind for kind in kinds if kind is not NoneType)
    if len(kinds) == 1:
        return kinds[0]
    tags = {kind.__struct_config__.tag: kind for kind in kinds if is_struct(kind)}
    return tags[value["type"]] if tags else kinds[0]


def message_of(version: Version, data: bytes, hint: Any) -> bytes:
    """A message of the internal port as that version writes it."""
    raw = msgspec.msgpack.decode(data)
    return msgspec.msgpack.encode(rewritten(raw, hint, CHANGES[version]))


class Kinds(NamedTuple):
    """Every kind of value in some documents: maps, lists, and enumerations."""

    structs: dict[str, type]
    rows: dict[str, type]
    enums: dict[str, type]


def kinds_in(*hints: Any) -> Kinds:
    """All kinds that documents of these types are made of."""
    found = Kinds({}, {}, {})
    for hint in hints:
        _gather(hint, found)
    return found


def _gather(hint: Any, found: Kinds) -> None:
    if is_struct(hint) or is_row(hint):
        known = found.structs if is_struct(hint) else found.rows
        if hint.__name__ not in known:
            known[hint.__name__] = hint
            for part in get_type_hints(hint).values():
                _gather(part, found)
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        found.enums[hint.__name__] = hint
    for part in get_args(hint):
        _gather(part, found)

"""From the text of manifest files to the objects a source holds: pure.

Two rules make a folder that is being edited safe to serve from. A document that cannot be used
leaves its object as it last was: by its name where that can be read, else by its place in the file,
and where the text is no YAML, everything that the file last held and that is not in it now. And of
one object in two documents the first counts, by path and place, so that all processes agree.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from fleet.errors import ManifestError
from fleet.model import Pod
from fleet.sources.contract import Change, Kind, Object, ObjectKey, Problem
from fleet.sources.identify import Identity, identify
from fleet.sources.parse import expand, parse
from fleet.sources.yamldocs import Chunk, chunks, load


class Place(NamedTuple):
    """Where in its file an object stands: document and item of a List, both from 1."""

    document: int
    item: int

    def __str__(self) -> str:
        return f"document {self.document}" + (f" item {self.item}" if self.item > 1 else "")


@dataclass(frozen=True, slots=True)
class Entry:
    """What one document, or one item of a List, came to: a value or a problem.

    Attributes:
        identity: None where not even the name could be read.
        text_lost: the text itself is no YAML, so what else stood there is unknown.
    """

    place: Place
    identity: Identity | None
    value: Object | None
    problem: str | None = None
    text_lost: bool = False


class Held(NamedTuple):
    """An object that a file contributes; `kept` = as it last was, its document is bad now."""

    place: Place
    identity: Identity
    value: Object
    kept: bool = False


class _Parsed(NamedTuple):
    identity: Identity
    value: Object
    item: int


Remembered = Mapping[bytes, tuple[_Parsed, ...]]
"""Digest of a document's text -> what it came to; only documents without any problem."""


@dataclass(frozen=True, slots=True)
class FileContent:
    """One file as read: its entries, and its documents remembered for the next reading."""

    entries: tuple[Entry, ...]
    remembered: Remembered = field(default_factory=dict)


def read_text(text: str, remembered: Remembered) -> FileContent:
    """Parse a file; documents whose text is in `remembered` are not parsed again."""
    entries: list[Entry] = []
    now: dict[bytes, tuple[_Parsed, ...]] = {}
    for number, chunk in enumerate(chunks(text), start=1):
        digest = hashlib.blake2b(chunk.text.strip("\n").encode(), digest_size=16).digest()
        known = remembered.get(digest)
        if known is not None:
            fresh = [Entry(Place(number, one.item), one.identity, one.value) for one in known]
        else:
            fresh = list(_read_chunk(number, chunk))
        entries.extend(fresh)
        if not any(entry.problem for entry in fresh):
            now[digest] = tuple(
                _Parsed(entry.identity, entry.value, entry.place.item)
                for entry in fresh
                if entry.identity is not None and entry.value is not None
            )
    return FileContent(tuple(entries), now)


def unreadable(problem: str) -> FileContent:
    """A file of which nothing could be read: all that it last held is kept."""
    return FileContent((Entry(Place(1, 1), None, None, problem, text_lost=True),))


def _read_chunk(number: int, chunk: Chunk) -> Iterator[Entry]:
    try:
        raws = [raw for document in load(chunk) for raw in expand(document)]
    except ManifestError as error:
        yield Entry(Place(number, 1), None, None, str(error), text_lost=True)
        return
    for item, raw in enumerate(raws, start=1):
        entry = _read_object(Place(number, item), raw)
        if entry is not None:
            yield entry


def _read_object(place: Place, raw: object) -> Entry | None:
    identity: Identity | None = None
    try:
        identity = identify(raw)
        if identity is None:
            return None
        return Entry(place, identity, parse(identity, cast(Mapping[object, object], raw)))
    except ManifestError as error:
        return Entry(place, identity, None, str(error))


def settle(
    entries: tuple[Entry, ...], before: tuple[Held, ...], known: Mapping[Identity, Object]
) -> tuple[Held, ...]:
    """What a file contributes now.

    Args:
        before: what it contributed until now.
        known: all objects of the folder as they are served, for a bad document that was moved here
            from another file.
    """
    good = [
        Held(entry.place, entry.identity, entry.value)
        for entry in entries
        if entry.identity is not None and entry.value is not None
    ]
    bad = [entry for entry in entries if entry.problem is not None]
    if not bad:
        return tuple(good)
    present = {held.identity for held in good}
    places = {entry.place for entry in bad if entry.identity is None}
    named = {entry.identity: entry.place for entry in bad if entry.identity is not None}
    lost = any(entry.text_lost for entry in bad)
    kept: dict[Identity, Held] = {}
    for held in before:
        if lost or held.identity in named or held.place in places:
            kept.setdefault(held.identity, held._replace(kept=True))
    for identity, place in named.items():
        if identity in known:
            kept.setdefault(identity, Held(place, identity, known[identity], kept=True))
    return (*good, *(held for held in kept.values() if held.identity not in present))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All objects of a folder at one time, each once, and what is wrong with the rest.

    Attributes:
        known: the same objects by full identity (API version included).
    """

    objects: Mapping[Kind, Mapping[ObjectKey, Object]] = field(
        default_factory=lambda: {kind: {} for kind in Kind}
    )
    known: Mapping[Identity, Object] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


class FileHolding(NamedTuple):
    """A file's entries and what it contributes."""

    entries: tuple[Entry, ...]
    holding: tuple[Held, ...]


def merge(files: Mapping[str, FileHolding]) -> Snapshot:
    """Unite files (by path) into one snapshot.

    Of one name under two API versions v1 wins, silently; of one object in two documents the first
    wins and the other is a problem; an object kept from a bad document yields to a good one.
    """
    chosen: dict[tuple[Kind, ObjectKey], tuple[str, Held]] = {}
    problems: list[Problem] = []
    for path in sorted(files):
        problems.extend(
            Problem(f"{path}, {entry.place}", entry.problem)
            for entry in files[path].entries
            if entry.problem is not None
        )
        for held in sorted(files[path].holding, key=lambda each: each.place):
            key = (held.identity.kind, held.identity.key)
            first = chosen.get(key)
            if first is None or _weight(held) < _weight(first[1]):
                chosen[key] = (path, held)
            elif _weight(held) == _weight(first[1]) and not held.kept:
                problems.append(
                    Problem(
                        f"{path}, {held.place}",
                        f"{held.identity}: also in {first[0]}, {first[1].place}, which is used; "
                        "remove one of them",
                    )
                )
    objects: dict[Kind, dict[ObjectKey, Object]] = {kind: {} for kind in Kind}
    for (kind, name), (path, held) in chosen.items():
        objects[kind][name] = held.value
        if isinstance(held.value, Pod) and held.value.fault:
            problems.append(Problem(f"{path}, {held.place}", held.value.fault))
    known = {held.identity: held.value for _, held in chosen.values()}
    return Snapshot(objects, known, tuple(problems))


def _weight(held: Held) -> tuple[int, bool]:
    return held.identity.rank, held.kept


def changes(old: Snapshot, new: Snapshot) -> list[Change]:
    """What a listener must be told, removals first; equal objects are not mentioned."""
    result: list[Change] = []
    for kind in Kind:
        before, after = old.objects[kind], new.objects[kind]
        result.extend(
            Change(kind, key, value, None) for key, value in before.items() if key not in after
        )
        for key, value in after.items():
            previous = before.get(key)
            if previous != value:
                result.append(Change(kind, key, previous, value))
    return result

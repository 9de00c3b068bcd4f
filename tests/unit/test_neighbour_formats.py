"""Everything that crosses a process border, against the version before and the version after.

Of two neighbouring versions each reads what the other writes, so a struct may only gain fields that
have a default. The tables below hold every struct, row and enumeration as it is; whoever adds to
one finds here what that means:

- a new field of a struct: give it a default, name it in `tests.neighbour_versions.LATER`;
- a new struct: name it here with all its fields;
- a row (a named tuple) is written as a list and is closed: one more item cannot be read before;
- a new member of an enumeration cannot be read before either: version N must know it before
  version N + 1 may send it.
"""

import dataclasses
import importlib
import pkgutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

import fleet.control
from fleet.control import codec
from fleet.control.endpoint_messages import ENDPOINTS, AskEndpoints, PoolEndpoints
from fleet.control.messages import FORMAT, Down, MapUpdate, Up, WatchMap
from fleet.control.peer_messages import HOLDS, AskHolds, Holds
from fleet.control.state_messages import (
    PoolRows,
    StateMessage,
    decode_rows,
    decode_state,
    encode_rows,
)
from fleet.errors import FormatError
from fleet.local import state
from fleet.model import EpochVersion, RingSpec, ShardMap, Share
from fleet.model.members import Member
from fleet.store import codec as stored
from fleet.store.contract import Move
from tests.neighbour_versions import (
    CHANGES,
    LATER,
    STRANGE,
    Version,
    is_row,
    is_struct,
    kinds_in,
    message_of,
    rewritten,
)

STRUCTS: Mapping[str, str] = {
    "Addresses": "ext_proc health internal http",
    "Ask": "groups format",
    "AskEndpoints": "fleet namespace name format",
    "AskHolds": "fleet worker format",
    "AskShare": "format",
    "Assign": "share format",
    "AssignPart": "base version changed gone groups sum others peers format",
    "CoordinatorState": "id http pid",
    "DeadMember": "id incarnation signal at",
    "Feed": "starts rows complete absent format",
    "EndpointRow": "pod address ready running waiting kv age_ms inflight failures refused",
    "FleetState": ("fleet redis gateway token_file folder coordinators workers manifests format"),
    "Follow": "added removed format",
    "GroupStart": "group pools",
    "HoldReport": "group hold synced quiet streams_per_second",
    "Holds": "fleet worker incarnation version entries format",
    "LeaderHello": "fleet epoch leader format",
    "LeaderInfo": "id http internal",
    "LeaderRecord": "format id http internal epoch request",
    "Load": "streams_per_second streams_open loop_lag_ms",
    "MapPart": "base frame changed gone groups",
    "MapUpdate": "shard_map members format",
    "Member": (
        "id incarnation addresses zone node version weight started draining seen holds load"
    ),
    "MemberStatus": "member state signal owned standby",
    "MetricsRow": "waiting running kv age_ms seen failures refused",
    "Move": "group source target reason version started finished outcome",
    "OwnerOf": "group owner",
    "Owners": "version owners format",
    "Placement": "group pools phase owners standby reason since moving_to draining",
    "PoolEndpoints": (
        "fleet worker incarnation namespace name hold endpoints total ready requests_per_second "
        "format"
    ),
    "PoolRows": "pool counts metrics slots",
    "Report": "version seen holds draining load format",
    "RingSpec": "hash vnodes weights",
    "SetDrain": "on format",
    "ShardMap": "fleet version published_at leader placements incarnations addresses dead",
    "Share": "fleet worker incarnation version entries",
    "ShareEntry": "group hold pools owner",
    "StateHello": "fleet worker incarnation format",
    "Unknown": "type format",
    "Verdict": "incarnation kind reason format",
    "WatchMap": "parts format",
    "WorkerHello": "member format",
    "WorkerPeer": "internal incarnation",
    "WorkerState": "id ext_proc health internal http pid",
    "_BatchDocument": "format moves",
    "_MapDocument": "fleet published_at leader placements incarnations addresses dead",
    "_MemberDocument": (
        "format id incarnation addresses zone node version weight started draining seen holds load"
    ),
    "_MoveDocument": "format move",
    "_Numbered": "format",
    "_NumberedDocument": "format",
    "_ShareDocument": "fleet worker incarnation entries",
}
"""Fields of each struct in its first form."""

ROWS: Mapping[str, str] = {
    "EpochVersion": "epoch version",
    "GroupKey": "namespace service port",
    "PoolId": "ref uid",
    "PoolNumber": "number pool",
    "PoolRef": "namespace name",
}

ENUMS: Mapping[str, str] = {
    "Hold": "opening standby owner draining",
    "MemberState": "alive suspect draining dead",
    "Phase": "unowned opening owned moving quarantined",
    "Reason": "initial owner_dead drain join balance rollout pinned kept",
    "Signal": "refused silent incarnation pod_gone",
}


def _roots() -> list[type]:
    modules = [stored, state]
    for found in pkgutil.iter_modules(fleet.control.__path__):
        modules.append(importlib.import_module(f"fleet.control.{found.name}"))
    return [
        kind
        for module in modules
        for kind in vars(module).values()
        if is_struct(kind) and kind.__module__ == module.__name__
    ]


KINDS = kinds_in(*_roots(), RingSpec)
PEERS: Mapping[type, Callable[[bytes], Any]] = {
    AskHolds: HOLDS.question,
    Holds: HOLDS.answer,
    AskEndpoints: ENDPOINTS.question,
    PoolEndpoints: ENDPOINTS.answer,
}
"""Questions, their answers, and what reads them."""

MESSAGES = (
    *get_args(Up),
    *get_args(Down),
    *get_args(StateMessage),
    MapUpdate,
    WatchMap,
    *PEERS,
)


def sample(hint: Any) -> Any:
    """Some value of this type, with nothing left out."""
    if is_struct(hint) or is_row(hint):
        return hint(**{name: sample(part) for name, part in get_type_hints(hint).items()})
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return sample(next(part for part in arguments if part is not NoneType))
    if origin is not None and issubclass(origin, Mapping):
        return {sample(arguments[0]): sample(arguments[1])}
    if origin is tuple and Ellipsis not in arguments:
        return tuple(sample(part) for part in arguments)
    if origin is not None and issubclass(origin, Sequence):
        return origin([sample(arguments[0])])
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return list(hint)[-1]
    if hint is msgspec.Raw:
        return encode_rows(sample(PoolRows))
    return {str: "text", bytes: b"piece", int: FORMAT, float: 2.5, bool: True}[hint]


def without_later(value: Any) -> Any:
    """`value` with every later field at its default."""
    kind = type(value)
    if is_struct(kind):
        later = LATER.get(kind.__name__, "").split()
        fields = {
            name: without_later(getattr(value, name))
            for name in get_type_hints(kind)
            if name not in later
        }
        return kind(**fields)
    if is_row(kind):
        return value
    if isinstance(value, dict):
        return {key: without_later(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(without_later(part) for part in value)
    return value


def _defaulted(kind: type) -> set[str]:
    fields = msgspec.inspect.type_info(kind).fields  # type: ignore[attr-defined]
    return {field.name for field in fields if not field.required}


# The tables.


@pytest.mark.parametrize("name", sorted(KINDS.structs.keys() | STRUCTS.keys()))
def test_a_struct_only_gains_fields_with_a_default(name: str) -> None:
    """See the head of this file for what to do when this fails."""
    assert name in KINDS.structs, f"{name}: gone; peers and the store still know it"
    assert name in STRUCTS, f"{name}: name it in STRUCTS with all its fields"
    kind = KINDS.structs[name]
    first, later = STRUCTS[name].split(), LATER.get(name, "").split()
    assert set(get_type_hints(kind)) == {*first, *later}
    assert set(later) <= _defaulted(kind), f"{name}: give the new field a default"


def test_only_structs_that_there_are_have_later_fields() -> None:
    """No line of the table is left over."""
    assert LATER.keys() <= STRUCTS.keys()


def test_rows_and_enumerations_are_as_they_were() -> None:
    """See the head of this file for what to do when this fails."""
    assert {name: " ".join(get_type_hints(kind)) for name, kind in KINDS.rows.items()} == ROWS
    assert {
        name: " ".join(member.value for member in kind)  # type: ignore[attr-defined]
        for name, kind in KINDS.enums.items()
    } == ENUMS


# Messages.


def decoded(kind: type, data: bytes) -> Any:
    if kind is MapUpdate:
        return codec.decode_map_update(data)
    if kind is WatchMap:
        return codec.decode_watch_map(data)
    if kind in get_args(StateMessage):
        return decode_state(data)
    if kind in PEERS:
        return PEERS[kind](data)
    return (codec.decode_up if kind in get_args(Up) else codec.decode_down)(data)


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_of_the_version_before_is_understood(kind: type) -> None:
    """What it does not say yet has its default."""
    message = sample(kind)
    data = message_of(Version.BEFORE, codec.encode(message), kind)
    assert decoded(kind, data) == without_later(message)


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_of_the_version_after_is_understood(kind: type) -> None:
    """What it says beyond us is left out."""
    message = sample(kind)
    data = message_of(Version.AFTER, codec.encode(message), kind)
    assert STRANGE.encode() in data
    found = decoded(kind, data)
    assert found.format == FORMAT + 1
    assert msgspec.structs.replace(found, format=FORMAT) == message


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("readable", [True, False])
def test_a_message_two_versions_ahead_is_refused_by_both_numbers(
    kind: type, readable: bool
) -> None:
    """Also where nothing else of it can be read: then that is not what is wrong."""
    raw = msgspec.msgpack.decode(codec.encode(sample(kind)))
    raw["format"] = FORMAT + 2
    if not readable:
        raw = {name: part if name in ("type", "format") else [] for name, part in raw.items()}
    with pytest.raises(FormatError, match=f"format {FORMAT + 2}.*reads formats 1 to {FORMAT + 1}"):
        decoded(kind, msgspec.msgpack.encode(raw))


def test_rows_of_a_neighbour_are_understood() -> None:
    """They are written as lists, which grow at their end, and go inside a Feed as they are."""
    rows = sample(PoolRows)
    raw = message_of(Version.AFTER, encode_rows(rows), PoolRows)
    assert STRANGE.encode() not in raw
    assert len(raw) > len(encode_rows(rows))
    assert decode_rows(msgspec.Raw(raw)) == rows


# The store.


def _blob(version: Version, blob: bytes, hint: Any) -> bytes:
    """A blob of the store as that version writes it."""
    head, _, body = blob.partition(b"\n")
    raw = rewritten(msgspec.json.decode(stored._inflate(body, "test")), hint, CHANGES[version])
    number = FORMAT if version is Version.BEFORE else FORMAT + 1
    packed = zlib.compress(msgspec.json.encode(raw))
    return b"%d %s\n" % (number, head.partition(b" ")[2]) + packed


def _shard_map() -> ShardMap:
    found: ShardMap = sample(ShardMap)
    placements = {placement.group: placement for placement in found.placements.values()}
    return dataclasses.replace(found, version=EpochVersion(3, 4), placements=placements)


@pytest.mark.parametrize("version", Version)
def test_map_ring_and_share_of_a_neighbour_are_understood(version: Version) -> None:
    """The stored copies of all that was published."""
    wanted = without_later if version is Version.BEFORE else lambda value: value
    shard_map, share, ring = _shard_map(), sample(Share), sample(RingSpec)
    blob = _blob(version, stored.encode_map(shard_map), stored._MapDocument)
    assert stored.decode_map(blob, "k") == wanted(shard_map)
    blob = _blob(version, stored.encode_share(share), stored._ShareDocument)
    assert stored.decode_share(blob, "k") == wanted(share)
    blob = _blob(version, stored.encode_ring(ring, EpochVersion(3, 4)), RingSpec)
    assert stored.decode_ring(blob, "k") == (ring, EpochVersion(3, 4))


@pytest.mark.parametrize("version", Version)
def test_members_leaders_and_moves_of_a_neighbour_are_understood(version: Version) -> None:
    """What is plain JSON in the store."""
    wanted = without_later if version is Version.BEFORE else lambda value: value

    def neighbours(raw: bytes, hint: Any) -> bytes:
        return msgspec.json.encode(rewritten(msgspec.json.decode(raw), hint, CHANGES[version]))

    member, move, leader = sample(Member), sample(Move), sample(stored.LeaderRecord)
    raw = neighbours(stored.encode_member(member), stored._MemberDocument)
    assert stored.decode_member(raw, "k") == wanted(member)
    ((last, _),) = stored.encode_moves([move])
    assert stored.decode_moves(neighbours(last, stored._MoveDocument), b"", "k") == [wanted(move)]
    raw = neighbours(msgspec.json.encode(leader), stored.LeaderRecord)
    assert stored.decode_leader(raw, "k").info == leader.info


def test_stored_values_two_versions_ahead_are_refused_by_both_numbers() -> None:
    """Also where nothing else of them can be read."""
    number = FORMAT + 2
    says = f"k: format {number} .*ours: {FORMAT}"
    for decode in (stored.decode_map, stored.decode_share, stored.decode_ring):
        with pytest.raises(FormatError, match=says):
            decode(b"%d 3.4\n" % number + b"whatever", "k")
    for raw in (b'{"format":3}', b'{"format":3,"id":{},"move":7}'):
        for read in (stored.decode_member, stored.decode_leader):
            with pytest.raises(FormatError, match=says):
                read(raw, "k")
        with pytest.raises(FormatError, match=says):
            stored.decode_moves(raw, b"", "k")

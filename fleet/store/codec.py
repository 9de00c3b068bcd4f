"""How facts are written into the store, and read back by this version and its neighbours.

Map, ring and shares are *blobs*: one ASCII line `<format> <epoch>.<version>`, then zlib-compressed
JSON, so that a script or a reader compares versions without decoding anything. Members, leaders
and moves are plain JSON with a `format` field.

Version N reads N-1 and N+1: unknown fields are ignored, missing ones take their defaults, and a
format above ours + 1 is refused. Whatever cannot be read raises FormatError naming the key.
"""

import contextlib
import re
import zlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from fleet.errors import FormatError
from fleet.model import (
    Addresses,
    DeadMember,
    EpochVersion,
    GroupKey,
    Hold,
    LeaderInfo,
    Load,
    Member,
    Placement,
    RingSpec,
    ShardMap,
    Share,
    ShareEntry,
)
from fleet.model.identity import NONE
from fleet.store.contract import Move
from fleet.store.pieces import LEVEL, Item, Pieces, deflated

FORMAT: Final = 1
MAX_DECODED_BYTES: Final = 64 * 1024 * 1024
"""A map of 100,000 pools is about 30 MB of JSON; more than this is no map of ours."""

BATCH_MOVES: Final = 250
"""So many moves share one entry of the audit stream: 10,000 entries of one move each held the
server for 40 ms, 40 of these for less than 1 ms."""

_HEADER_BYTES: Final = 64
_HEADER: Final = re.compile(rb"([0-9]{1,9}) ([0-9]{1,16})\.([0-9]{1,16})\n")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _MapDocument:
    fleet: str
    published_at: float
    leader: LeaderInfo
    placements: list[Placement]
    incarnations: dict[str, str]
    addresses: dict[str, str]
    dead: tuple[DeadMember, ...] = ()


@dataclass(frozen=True, slots=True)
class _ShareDocument:
    fleet: str
    worker: str
    incarnation: str
    entries: tuple[ShareEntry, ...]


class _MemberDocument(msgspec.Struct, frozen=True):
    format: int
    id: str
    incarnation: str
    addresses: Addresses
    zone: str = ""
    node: str = ""
    version: str = ""
    weight: int = 1
    started: float = 0.0
    draining: bool = False
    seen: EpochVersion = NONE
    holds: msgspec.Raw = msgspec.Raw(b"[]")
    load: Load = Load()
    applied: EpochVersion = NONE


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """The lease's value. The epoch is text: a script's JSON keeps only 14 digits of a number."""

    format: int
    id: str
    http: str
    internal: str
    epoch: str
    request: str = ""

    @property
    def info(self) -> LeaderInfo:
        """Who holds the lease."""
        return LeaderInfo(self.id, self.http, self.internal)


@dataclass(frozen=True, slots=True)
class _MoveDocument:
    format: int
    move: Move


@dataclass(frozen=True, slots=True)
class _BatchDocument:
    format: int
    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class _NumberedDocument:
    format: int = FORMAT


_encoder: Final = msgspec.json.Encoder()
_numbered: Final = msgspec.json.Decoder(_NumberedDocument)
_maps: Final = msgspec.json.Decoder(_MapDocument)
_rings: Final = msgspec.json.Decoder(RingSpec)
_shares: Final = msgspec.json.Decoder(_ShareDocument)
_members: Final = msgspec.json.Decoder(_MemberDocument)
_holds: Final = msgspec.json.Decoder(tuple[tuple[GroupKey, Hold], ...])
_leaders: Final = msgspec.json.Decoder(LeaderRecord)
_moves: Final = msgspec.json.Decoder(_MoveDocument)
_batches: Final = msgspec.json.Decoder(_BatchDocument)


def encode_map(shard_map: ShardMap, pieces: Pieces | None = None) -> bytes:
    """The map as a blob.

    Args:
        pieces: of the map before: what is in them is not packed again.
    """
    document = _MapDocument(
        fleet=shard_map.fleet,
        published_at=shard_map.published_at,
        leader=shard_map.leader,
        placements=[],
        incarnations=dict(shard_map.incarnations),
        addresses=dict(shard_map.addresses),
        dead=shard_map.dead,
    )
    placements = shard_map.placements.values()
    return _pack_list(shard_map.version, document, "placements", placements, pieces)


def decode_map(blob: bytes, key: str) -> ShardMap:
    """Read what `encode_map` wrote.

    Raises:
        FormatError: damaged, too large, or of an unknown format.
    """
    version, document = _unpack(blob, key, _maps)
    return ShardMap(
        fleet=document.fleet,
        version=version,
        published_at=document.published_at,
        leader=document.leader,
        placements={placement.group: placement for placement in document.placements},
        incarnations=document.incarnations,
        addresses=document.addresses,
        dead=document.dead,
    )


def encode_ring(ring: RingSpec, version: EpochVersion) -> bytes:
    """The ring as a blob, with the version it is published with."""
    return _pack(version, ring)


def decode_ring(blob: bytes, key: str) -> tuple[RingSpec, EpochVersion]:
    """Read what `encode_ring` wrote; FormatError as for maps."""
    version, ring = _unpack(blob, key, _rings)
    return ring, version


def encode_share(share: Share, pieces: Pieces | None = None) -> bytes:
    """A share as a blob; `pieces` are of the worker's share before."""
    document = _ShareDocument(share.fleet, share.worker, share.incarnation, ())
    return _pack_list(share.version, document, "entries", share.entries, pieces)


def decode_share(blob: bytes, key: str) -> Share:
    """Read what `encode_share` wrote; FormatError as for maps."""
    version, document = _unpack(blob, key, _shares)
    return Share(document.fleet, document.worker, document.incarnation, version, document.entries)


def version_of(head: bytes, key: str) -> EpochVersion:
    """The epoch.version of a blob, from its first 64 bytes or more, without decoding it.

    Raises:
        FormatError: no blob of ours, or a format that we cannot read.
    """
    match = _HEADER.match(head[:_HEADER_BYTES])
    if match is None:
        raise FormatError(f"{key}: not a value of ours (starts with {head[:16]!r})")
    _check_format(int(match[1]), key)
    return EpochVersion(int(match[2]), int(match[3]))


def encode_member(member: Member) -> bytes:
    """A member as JSON."""
    return _encoder.encode(
        _MemberDocument(
            format=FORMAT,
            id=member.id,
            incarnation=member.incarnation,
            addresses=member.addresses,
            zone=member.zone,
            node=member.node,
            version=member.version,
            weight=member.weight,
            started=member.started,
            draining=member.draining,
            seen=member.seen,
            holds=msgspec.Raw(_encoder.encode(tuple(member.holds.items()))),
            load=member.load,
            applied=member.applied,
        )
    )


class KnownHolds:
    """What each member said of its groups last. A beat seldom says anything new there, and it is
    nearly all that a beat is made of: of 200 groups it takes 0.3 ms, of the rest 0.02.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, Mapping[GroupKey, Hold]]] = {}

    def read(self, worker: str, raw: bytes, key: str) -> Mapping[GroupKey, Hold]:
        """The same object as long as the bytes are the same.

        Raises:
            FormatError: damaged.
        """
        known = self._known.get(worker)
        if known is not None and known[0] == raw:
            return known[1]
        pairs = _read(_holds, raw, key)
        holds = dict(pairs)
        self._known[worker] = (raw, holds)
        return holds

    def keep(self, workers: Container[str]) -> None:
        """Forget all but these."""
        for worker in [worker for worker in self._known if worker not in workers]:
            del self._known[worker]


def decode_member(raw: bytes, key: str, known: KnownHolds | None = None) -> Member:
    """Read what `encode_member` wrote.

    Raises:
        FormatError: damaged, or of an unknown format.
    """
    document = _read(_members, raw, key)
    _check_format(document.format, key)
    holds = (known or KnownHolds()).read(document.id, bytes(document.holds), key)
    return Member(
        id=document.id,
        incarnation=document.incarnation,
        addresses=document.addresses,
        zone=document.zone,
        node=document.node,
        version=document.version,
        weight=document.weight,
        started=document.started,
        draining=document.draining,
        seen=document.seen,
        holds=holds,
        load=document.load,
        applied=document.applied,
    )


def decode_leader(raw: bytes, key: str) -> LeaderRecord:
    """Read the lease's value, as the script wrote it.

    Raises:
        FormatError: damaged, or of an unknown format.
    """
    record = _read(_leaders, raw, key)
    _check_format(record.format, key)
    return record


def encode_moves(moves: Sequence[Move]) -> list[tuple[bytes, bytes]]:
    """Entries of the audit stream, oldest first: the last move of a batch, and those before it.

    The last one stands alone as JSON, as the only one of an entry did before there were batches:
    version N-1 reads it, and leaves the others out.
    """
    batches = [moves[i : i + BATCH_MOVES] for i in range(0, len(moves), BATCH_MOVES)]
    return [(_encoder.encode(_MoveDocument(FORMAT, b[-1])), _earlier(b[:-1])) for b in batches]


def decode_moves(last: bytes, earlier: bytes, key: str) -> list[Move]:
    """The moves of one entry, newest first; FormatError as for members."""
    document = _read(_moves, last, key)
    _check_format(document.format, key)
    if not earlier:
        return [document.move]
    batch = _read(_batches, _inflate(earlier, key), key)
    _check_format(batch.format, key)
    return [document.move, *reversed(batch.moves)]


def _earlier(moves: Sequence[Move]) -> bytes:
    document = _BatchDocument(FORMAT, tuple(moves))
    return zlib.compress(_encoder.encode(document), LEVEL) if moves else b""


def _pack(version: EpochVersion, document: object) -> bytes:
    head = f"{FORMAT} {version}\n".encode()
    return head + zlib.compress(_encoder.encode(document), LEVEL)


def _pack_list(
    version: EpochVersion,
    document: object,
    field: str,
    items: Iterable[Item],
    pieces: Pieces | None,
) -> bytes:
    """`document` with `items` in its list `field`, which is empty there."""
    members = msgspec.to_builtins(document, str_keys=True)
    del members[field]
    tail = b"]," + _encoder.encode(members)[1:]
    head = b'{"%s":[' % field.encode()
    packed = deflated(head, (pieces or Pieces()).of(items, _encoder), tail)
    return f"{FORMAT} {version}\n".encode() + packed


def _unpack(blob: bytes, key: str, decoder: msgspec.json.Decoder[T]) -> tuple[EpochVersion, T]:
    version = version_of(blob, key)
    return version, _read(decoder, _inflate(blob[blob.index(b"\n") + 1 :], key), key)


def _inflate(body: bytes, key: str) -> bytes:
    stream = zlib.decompressobj()
    try:
        text = stream.decompress(body, MAX_DECODED_BYTES)
    except zlib.error as error:
        raise FormatError(f"{key}: damaged: {error}") from error
    if not stream.eof:
        what = f"more than {MAX_DECODED_BYTES} bytes" if stream.unconsumed_tail else "cut short"
        raise FormatError(f"{key}: {what}")
    return text


def _read(decoder: msgspec.json.Decoder[T], raw: bytes, key: str) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
            # Of a format that is too new the number is what is wrong, not whatever else is.
            _check_format(_numbered.decode(raw).format, key)
        raise FormatError(f"{key}: cannot be read: {error}") from error


def _check_format(number: int, key: str) -> None:
    if not 1 <= number <= FORMAT + 1:
        raise FormatError(
            f"{key}: format {number} is not known to this version (ours: {FORMAT}, read: 1 to "
            f"{FORMAT + 1})"
        )

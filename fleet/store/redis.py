"""The store in one Redis (>= 6.2) or Valkey server: keys, scripts, and what their replies mean.

All keys of a fleet share the hash tag `{<fleet>}`, so they live in one slot of a cluster and every
script may touch them together. Nothing here but the audit stream is the only copy: after a FLUSHALL
the leader writes it all again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from fleet.clock import Clock, SystemClock
from fleet.errors import FormatError, StoreRefused
from fleet.model import EpochVersion, LeaderInfo, Member, RingSpec, ShardMap, Share
from fleet.settings.model import RedisSettings
from fleet.settings.store_url import parse_store_url
from fleet.store import codec
from fleet.store.contract import MAX_EPOCH, MAX_MOVES, Guard, Lease, MemberBeat, Move, Publication
from fleet.store.faults import Faults
from fleet.store.link import Link, Reply, Word
from fleet.store.pieces import Pieces
from fleet.store.scripts import script
from fleet.store.sentinel import Sentinels

log = logging.getLogger(__name__)

_LEASE_CONNECTIONS: Final = 2
_DATA_CONNECTIONS: Final = 4
_INLINE_GROUPS: Final = 200
"""Above this a publication is packed by a thread: the first of 10,000 groups takes about 80 ms."""
_SHARE_PIECE: Final = 8
"""Groups that are packed together in a share: a few of its hundreds change at once."""
_MAX_ENTRIES: Final = 10_000
"""About how many entries the audit stream keeps: one a publication, more if it has many moves."""
_INLINE_BYTES: Final = 32 * 1024
"""Above this a map is unpacked by a thread: 500 kB take about 35 ms."""


class RedisStore:
    """One process's client; keeps every rule of `fleet.store.contract.Store`.

    The lease has connections of its own: it never waits behind a map.
    """

    def __init__(self, settings: RedisSettings, fleet: str, clock: Clock | None = None) -> None:
        """Connects on first use.

        Raises:
            SettingsError: `settings.url` cannot be read.
        """
        url = parse_store_url(settings.url)
        timeout = settings.request_timeout_seconds
        self._fleet = fleet
        self._acks = settings.min_acks
        self._faults = Faults(str(url), clock or SystemClock())
        self._sentinels = Sentinels(url, timeout_seconds=timeout) if url.sentinels else None
        link = partial(
            Link,
            url,
            timeout_seconds=timeout,
            faults=self._faults,
            sentinels=self._sentinels,
        )
        self._lease_link = link(connections=_LEASE_CONNECTIONS)
        self._data_link = link(connections=_DATA_CONNECTIONS)
        self._leader, self._epoch = self._key("leader"), self._key("epoch")
        self._members, self._beats = self._key("members"), self._key("beats")
        self._unreadable: set[str] = set()
        self._holds = codec.KnownHolds()
        self._map_pieces = Pieces()
        self._share_pieces: dict[str, Pieces] = {}
        self._map, self._ring, self._moves = self._key("map"), self._key("ring"), self._key("moves")

    def errors(self) -> Mapping[str, int]:
        """How many calls failed so far, by the kinds of `fleet.store.faults.Fault`."""
        return self._faults.counts

    async def acquire(
        self, leader: LeaderInfo, *, floor: int, ttl_seconds: float, request: str
    ) -> Lease:
        """See `Store.acquire`."""
        who = (leader.id, leader.http, leader.internal, request)
        limits = (floor, _milliseconds(ttl_seconds), MAX_EPOCH, codec.FORMAT)
        reply = await self._lease_link.run(
            script("acquire"), self._lease_keys(), (*who, *limits), acks=self._acks
        )
        return self._lease(reply, f"acquire by {leader.id}")

    async def renew(self, guard: Guard, *, ttl_seconds: float) -> Lease:
        """See `Store.renew`."""
        args = (guard.holder, guard.epoch, _milliseconds(ttl_seconds))
        keys = self._lease_keys()
        # A renewal that only the primary has is lost with it: others could lead before its holder
        # must have stopped.
        reply = await self._lease_link.run(script("renew"), keys, args, acks=self._acks)
        return self._lease(reply, f"renew by {guard.holder}")

    async def release(self, guard: Guard) -> None:
        """See `Store.release`."""
        keys = (self._leader, self._epoch)
        await self._lease_link.run(script("release"), keys, (guard.holder, guard.epoch))

    async def lease(self) -> Lease:
        """See `Store.lease`."""
        reply = await self._lease_link.run(script("lease"), self._lease_keys(), ())
        return self._lease(reply, "lease")

    async def beat(self, member: Member) -> None:
        """See `Store.beat`."""
        args = (member.id, codec.encode_member(member))
        await self._data_link.run(script("beat"), (self._members, self._beats), args)

    async def members(self) -> tuple[MemberBeat, ...]:
        """See `Store.members`."""
        reply = await self._data_link.run(script("members"), (self._members, self._beats), ())
        with _understood(self._members):
            (seconds, microseconds), values, scores = reply
            now = int(seconds) + int(microseconds) / 1e6
            heard = {name: float(score) for name, score in _pairs(scores)}
            members = sorted(_pairs(values))
        found, unreadable = [], set()
        for name, raw in members:
            try:
                key = f"{self._members} {_text(name)}"
                member = codec.decode_member(raw, key, self._holds)
                self._same(self._members, member.id, _text(name))
            except FormatError as error:
                unreadable.add(str(error))
                continue
            # Both keys are written in one step; a member whose beat was evicted is unknown.
            if name in heard:
                found.append(MemberBeat(member, now - heard[name]))
        for fault in sorted(unreadable - self._unreadable):
            log.error("member left out, its value cannot be read", extra={"error": fault})
        self._unreadable = unreadable
        self._holds.keep({each.member.id for each in found})
        return tuple(found)

    async def forget(self, guard: Guard, worker: str, incarnation: str) -> None:
        """See `Store.forget`."""
        keys = (self._leader, self._epoch, self._map, self._members, self._beats)
        args = (*_writer(guard), worker, incarnation)
        reply = await self._data_link.run(script("forget"), keys, args)
        _raise_if_refused(reply, f"forget {worker} by {guard.holder} in epoch {guard.epoch}")

    async def publish(self, guard: Guard, publication: Publication) -> None:
        """See `Store.publish`."""
        if len(publication.shard_map.placements) > _INLINE_GROUPS:
            values = await asyncio.to_thread(self._packed, publication)
        else:
            values = self._packed(publication)
        keys = [self._leader, self._epoch, self._map, self._ring, self._moves]
        keys += map(self._share_key, (*publication.shares, *publication.removed_shares))
        args = (*_writer(guard), _MAX_ENTRIES, *values)
        reply = await self._data_link.run(script("publish"), keys, args, acks=self._acks)
        version = publication.shard_map.version
        _raise_if_refused(reply, f"publish {version} by {guard.holder} in epoch {guard.epoch}")

    async def publish_shares(
        self,
        guard: Guard,
        version: EpochVersion,
        shares: Mapping[str, Share],
        removed: Sequence[str],
    ) -> None:
        """See `Store.publish_shares`."""
        if sum(len(share.entries) for share in shares.values()) > _INLINE_GROUPS:
            values = await asyncio.to_thread(self._packed_shares, shares, removed)
        else:
            values = self._packed_shares(shares, removed)
        keys = [*self._lease_keys(), *map(self._share_key, (*shares, *removed))]
        args = (*_writer(guard), version.version, len(shares), *values)
        reply = await self._data_link.run(script("publish_shares"), keys, args, acks=self._acks)
        what = f"publish shares of {version} by {guard.holder} in epoch {guard.epoch}"
        _raise_if_refused(reply, what)

    async def shard_map(self, newer_than: EpochVersion) -> ShardMap | None:
        """See `Store.shard_map`."""
        blob = await self._data_link.run(
            script("newer_map"), (self._map,), (newer_than.epoch, newer_than.version)
        )
        if blob is None:
            return None
        blob = _bytes(blob, self._map)
        if len(blob) > _INLINE_BYTES:
            shard_map = await asyncio.to_thread(codec.decode_map, blob, self._map)
        else:
            shard_map = codec.decode_map(blob, self._map)
        self._same(self._map, shard_map.fleet, self._fleet)
        return shard_map

    async def ring(self) -> tuple[RingSpec, EpochVersion] | None:
        """See `Store.ring`."""
        blob = await self._data_link.command("GET", self._ring)
        return None if blob is None else codec.decode_ring(_bytes(blob, self._ring), self._ring)

    async def share(self, worker: str) -> Share | None:
        """See `Store.share`."""
        key = self._share_key(worker)
        blob = await self._data_link.command("GET", key)
        if blob is None:
            return None
        share = codec.decode_share(_bytes(blob, key), key)
        self._same(key, f"{share.fleet} {share.worker}", f"{self._fleet} {worker}")
        return share

    async def moves(self, limit: int) -> tuple[Move, ...]:
        """See `Store.moves`."""
        if limit <= 0:
            return ()
        reply = await self._data_link.command("XREVRANGE", self._moves, "+", "-", "COUNT", limit)
        with _understood(self._moves):
            entries = [dict(_pairs(fields)) for _, fields in reply]
        found: list[Move] = []
        for entry in entries:
            if len(found) >= limit:
                break
            last, earlier = entry.get(b"move", b""), entry.get(b"earlier", b"")
            found += codec.decode_moves(last, earlier, self._moves)
        return tuple(found[:limit])

    async def close(self) -> None:
        """See `Store.close`."""
        await self._lease_link.close()
        await self._data_link.close()
        if self._sentinels is not None:
            await self._sentinels.close()

    def _packed(self, publication: Publication) -> list[Word]:
        version, shares = publication.shard_map.version, publication.shares
        values: list[Word] = [codec.encode_map(publication.shard_map, self._map_pieces)]
        values += [codec.encode_ring(publication.ring, version), len(shares)]
        values += self._packed_shares(shares, publication.removed_shares)
        for entry in codec.encode_moves(publication.moves[-MAX_MOVES:]):
            values += entry
        return values

    def _packed_shares(self, shares: Mapping[str, Share], removed: Sequence[str]) -> list[Word]:
        values: list[Word] = []
        for worker, share in shares.items():
            pieces = self._share_pieces.setdefault(worker, Pieces(_SHARE_PIECE))
            values.append(codec.encode_share(share, pieces))
        for worker in removed:
            self._share_pieces.pop(worker, None)
        return values

    def _key(self, name: str) -> str:
        return f"epp:{{{self._fleet}}}:{name}"

    def _share_key(self, worker: str) -> str:
        return self._key(f"share:{worker}")

    def _lease_keys(self) -> tuple[str, str, str]:
        return self._leader, self._epoch, self._map

    def _lease(self, reply: Reply, what: str) -> Lease:
        _raise_if_refused(reply, what)
        with _understood(self._leader):
            raw, left, epoch, head = reply
            last, remaining = int(epoch), left / 1000
        return Lease(
            leader=codec.decode_leader(raw, self._leader).info if raw else None,
            epoch=last,
            remaining_seconds=remaining,
            map_version=self._head_version(head),
        )

    def _head_version(self, head: bytes) -> EpochVersion | None:
        """A map that cannot be read is no map: it must not keep anybody from leading."""
        try:
            return codec.version_of(head, self._map) if head else None
        except FormatError:
            return None

    def _same(self, key: str, got: str, wanted: str) -> None:
        """A value names what it is of: an answer to another question is never taken for it."""
        if got != wanted:
            raise FormatError(f"{key}: holds a value of {got!r}, not of {wanted!r}")


def _writer(guard: Guard) -> tuple[Word, ...]:
    return guard.holder, guard.epoch, int(guard.elsewhere)


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _pairs(flat: Reply) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")


def _raise_if_refused(reply: Reply, what: str) -> None:
    """Raises StoreRefused, or FormatError for what no script of ours returns."""
    with _understood(what):
        if not isinstance(reply, list):
            raise TypeError(type(reply).__name__)
        if reply[0] != b"REFUSED":
            return
        _, why, holder, epoch = reply
        last = int(epoch)
    raise StoreRefused(
        f"{what}: {_text(why)} (holder {_text(holder) or 'none'}, epoch {last})",
        holder=_text(holder) or None,
        epoch=last,
    )


@contextlib.contextmanager
def _understood(what: str) -> Iterator[None]:
    """Whatever answers in place of the server, a reply of another shape is a FormatError."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise FormatError(f"{what}: not an answer of ours ({error})") from error


def _bytes(reply: Reply, key: str) -> bytes:
    if not isinstance(reply, bytes):
        raise FormatError(f"{key}: not an answer of ours ({type(reply).__name__})")
    return reply

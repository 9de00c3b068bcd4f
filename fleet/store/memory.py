"""The store without a server: for the simulation and for tests of what stands on a store.

`MemoryServer` is the shared thing, `MemoryStore` one client of it: two clients of one server see
the same fleet, as two processes on one Redis do. The server can be emptied (a restart without
persistence), rolled back (a fail-over to a replica that lagged) or made unavailable.
"""

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from fleet.clock import Clock
from fleet.errors import StoreRefused, StoreUnavailable
from fleet.model import EpochVersion, LeaderInfo, Member, RingSpec, ShardMap, Share
from fleet.store.contract import MAX_EPOCH, MAX_MOVES, Guard, Lease, MemberBeat, Move, Publication


@dataclass(slots=True)
class _Held:
    leader: LeaderInfo
    epoch: int
    request: str
    until: float


@dataclass(slots=True)
class _State:
    epoch: int = 0
    held: _Held | None = None
    beats: dict[str, tuple[Member, float]] = field(default_factory=dict)
    publication: Publication | None = None
    shares: dict[str, Share] = field(default_factory=dict)
    moves: deque[Move] = field(default_factory=lambda: deque(maxlen=MAX_MOVES))


class MemoryServer:
    """What the clients share. Its clock is the store's own clock.

    Attributes:
        available: False = every call of every client raises StoreUnavailable.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock: Final = clock
        self.available = True
        self.state = _State()

    def flush(self) -> None:
        """Forget everything, as a restart without persistence does."""
        self.state = _State()

    def snapshot(self) -> object:
        """The present state, for a later `restore`."""
        state = copy.copy(self.state)
        state.held = copy.copy(state.held)
        state.beats, state.shares = dict(state.beats), dict(state.shares)
        state.moves = deque(state.moves, maxlen=MAX_MOVES)
        return state

    def restore(self, snapshot: object) -> None:
        """Roll back, as a fail-over to a replica that lagged does. A snapshot restores once.

        Raises:
            TypeError: not what `snapshot` gave.
        """
        if not isinstance(snapshot, _State):
            raise TypeError("not a snapshot of a MemoryServer")
        self.state = snapshot


class MemoryStore:
    """One client; keeps every rule of `fleet.store.contract.Store`."""

    def __init__(self, clock: Clock, server: MemoryServer | None = None) -> None:
        """Args:
        clock: the store's clock, if no server is given.
        server: the server to share; None makes a new one.
        """
        self.server: Final = server if server is not None else MemoryServer(clock)
        self._closed = False

    async def acquire(
        self, leader: LeaderInfo, *, floor: int, ttl_seconds: float, request: str
    ) -> Lease:
        """See `Store.acquire`."""
        state = self._state()
        held = state.held
        now = self.server.clock.monotonic()
        if held is not None and held.leader.id != leader.id:
            return self._lease(state)
        if held is not None and held.request == request:
            held.until = now + ttl_seconds
            return self._lease(state)
        stored = max(state.epoch, held.epoch if held else 0, _map_epoch(state))
        epoch = max(stored, floor) + 1
        if epoch > MAX_EPOCH:
            raise StoreRefused(
                f"epoch {epoch} is above {MAX_EPOCH}: some epoch that was reported is wrong",
                holder=held.leader.id if held else None,
                epoch=stored,
            )
        state.epoch = epoch
        state.held = _Held(leader, epoch, request, now + ttl_seconds)
        return self._lease(state)

    async def renew(self, guard: Guard, *, ttl_seconds: float) -> Lease:
        """See `Store.renew`."""
        state = self._state()
        if state.held is not None and _holds(state, guard):
            state.held.until = self.server.clock.monotonic() + ttl_seconds
            state.epoch = max(state.epoch, guard.epoch)
        return self._lease(state)

    async def release(self, guard: Guard) -> None:
        """See `Store.release`."""
        state = self._state()
        if _holds(state, guard):
            state.held = None

    async def lease(self) -> Lease:
        """See `Store.lease`."""
        return self._lease(self._state())

    async def beat(self, member: Member) -> None:
        """See `Store.beat`."""
        self._state().beats[member.id] = (member, self.server.clock.monotonic())

    async def members(self) -> tuple[MemberBeat, ...]:
        """See `Store.members`."""
        state = self._state()
        now = self.server.clock.monotonic()
        return tuple(
            MemberBeat(member, now - at) for _, (member, at) in sorted(state.beats.items())
        )

    async def forget(self, guard: Guard, worker: str, incarnation: str) -> None:
        """See `Store.forget`."""
        state = self._state()
        if not _may_write(state, guard):
            _refuse(state, guard, f"forget {worker}")
        state.epoch = max(state.epoch, guard.epoch)
        known = state.beats.get(worker)
        if known is not None and known[0].incarnation == incarnation:
            del state.beats[worker]

    async def publish(self, guard: Guard, publication: Publication) -> None:
        """See `Store.publish`."""
        state = self._state()
        version = publication.shard_map.version
        if not _may_write(state, guard) or version.epoch != guard.epoch:
            _refuse(state, guard, f"publish {version}")
        state.epoch = max(state.epoch, guard.epoch)
        stored = state.publication
        if stored is not None and stored.shard_map.version >= version:
            if stored.shard_map == publication.shard_map:
                return
            _refuse(state, guard, f"publish {version} over {stored.shard_map.version}")
        state.publication = publication
        state.shares.update(publication.shares)
        for worker in publication.removed_shares:
            state.shares.pop(worker, None)
        state.moves.extend(publication.moves)

    async def publish_shares(
        self,
        guard: Guard,
        version: EpochVersion,
        shares: Mapping[str, Share],
        removed: Sequence[str],
    ) -> None:
        """See `Store.publish_shares`."""
        state = self._state()
        ours = all(share.version.epoch == guard.epoch for share in shares.values())
        if not _may_write(state, guard) or not ours:
            _refuse(state, guard, f"publish shares of {version}")
        state.epoch = max(state.epoch, guard.epoch)
        stored = state.shares
        for worker, share in shares.items():
            if worker not in stored or stored[worker].version < share.version:
                stored[worker] = share
        for worker in removed:
            if worker in stored and stored[worker].version < version:
                del stored[worker]

    async def shard_map(self, newer_than: EpochVersion) -> ShardMap | None:
        """See `Store.shard_map`."""
        stored = self._state().publication
        if stored is None or stored.shard_map.version <= newer_than:
            return None
        return stored.shard_map

    async def ring(self) -> tuple[RingSpec, EpochVersion] | None:
        """See `Store.ring`."""
        stored = self._state().publication
        return None if stored is None else (stored.ring, stored.shard_map.version)

    async def share(self, worker: str) -> Share | None:
        """See `Store.share`."""
        return self._state().shares.get(worker)

    async def moves(self, limit: int) -> tuple[Move, ...]:
        """See `Store.moves`."""
        latest = reversed(self._state().moves)
        return tuple(move for _, move in zip(range(limit), latest, strict=False))

    async def close(self) -> None:
        """See `Store.close`."""
        self._closed = True

    def _state(self) -> _State:
        """The server's state, with a lease that has run out taken away."""
        if self._closed:
            raise StoreUnavailable("memory: this client is closed")
        if not self.server.available:
            raise StoreUnavailable("memory: unavailable")
        state = self.server.state
        if state.held is not None and state.held.until <= self.server.clock.monotonic():
            state.held = None
        return state

    def _lease(self, state: _State) -> Lease:
        held, stored = state.held, state.publication
        return Lease(
            leader=held.leader if held else None,
            epoch=max(state.epoch, held.epoch if held else 0),
            remaining_seconds=held.until - self.server.clock.monotonic() if held else 0.0,
            map_version=stored.shard_map.version if stored else None,
        )


def _map_epoch(state: _State) -> int:
    return state.publication.shard_map.version.epoch if state.publication else 0


def _holds(state: _State, guard: Guard) -> bool:
    held = state.held
    return held is not None and (held.leader.id, held.epoch) == (guard.holder, guard.epoch)


def _may_write(state: _State, guard: Guard) -> bool:
    if not guard.elsewhere:
        return _holds(state, guard)
    held = state.held
    if held is not None and held.leader.id != guard.holder:
        return False
    return guard.epoch >= max(state.epoch, held.epoch if held else 0, _map_epoch(state))


def _refuse(state: _State, guard: Guard, what: str) -> NoReturn:
    holder = state.held.leader.id if state.held else None
    epoch = max(state.epoch, _map_epoch(state) if guard.elsewhere else 0)
    raise StoreRefused(
        f"{what} by {guard.holder} in epoch {guard.epoch}: held by {holder} in {epoch}",
        holder=holder,
        epoch=epoch,
    )

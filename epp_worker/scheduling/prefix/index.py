"""Which endpoints have which blocks cached: asked and told within one pick.

A block's entry says who has it in one number: a lane of 16 bits for each endpoint, 1 in the lanes
of those that have it. So the sum of the entries along a chain is, lane by lane, how many blocks
each endpoint has, and a lookup takes as long for a hundred endpoints as for one. The entries lie in
many small dicts, none of which takes long to grow.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Protocol

from epp_worker.scheduling.prefix.budget import BLOCK_BYTES, TURN_BYTES, Budget
from epp_worker.scheduling.prefix.recency import Recency
from fleet.model.pools import Endpoint

SHARDS: Final = 128
_SHARD: Final = SHARDS - 1
LANE_BITS: Final = 16
_LANE_BYTES: Final = LANE_BITS // 8
_FULL_LANE: Final = (1 << LANE_BITS) - 1
MAX_CAPACITY: Final = 250_000
"""Blocks of one endpoint, whatever it reports."""
DEFAULT_CAPACITY: Final = 31_250
"""Blocks of one endpoint: the llm-d router's `lruCapacityPerServer`."""
MAX_UNLISTED: Final = 64
"""Endpoints that others may tell of before they are listed here."""
MAX_DEPARTED: Final = 1024
"""Departed endpoints that are known as such: late news of them is passed over."""
SWEPT_AT_ONCE = 4096
"""Blocks of departed endpoints that are taken out of the entries when the endpoints change."""
SWEPT_PER_ADD = 256


@lru_cache(maxsize=256)
def _lanes_of(lanes: int) -> struct.Struct:
    return struct.Struct(f"<{lanes}H")


class Known(Protocol):
    """An endpoint as the scheduler sees it."""

    @property
    def endpoint(self) -> Endpoint:
        """Who it is."""
        ...


def identity(endpoint: Endpoint) -> str:
    """What an endpoint's cache belongs to: another pod, port or sandbox begins with nothing."""
    return f"{endpoint.pod_uid}/{endpoint.rank}/{endpoint.address}"


class Holding:
    """What one endpoint has.

    Attributes:
        capacity: blocks; fixed when the first ones are added, 0 before that.
        lane: its place in the entries.
        gone: its endpoint is no longer one of the pool's.
    """

    __slots__ = (
        "_budget",
        "_shards",
        "bit",
        "capacity",
        "gone",
        "key",
        "lane",
        "recency",
    )

    def __init__(self, key: str, lane: int, shards: list[dict[int, int]], budget: Budget) -> None:
        self.key = key
        self.lane = lane
        self.bit = 1 << LANE_BITS * lane
        self.capacity = 0
        self.gone = False
        self.recency = Recency()
        self._shards = shards
        self._budget = budget
        budget.admit(self)

    def used(self) -> int:
        """See `Tenant.used`."""
        return self.recency.size * BLOCK_BYTES + len(self.recency) * TURN_BYTES

    def add(self, path: list[int]) -> int:
        """These blocks are cached now, see `Recency.touch`; the turn's number."""
        recency = self.recency
        size, turns = recency.size, len(recency)
        turn, new = recency.touch(path)
        bit, shards = self.bit, self._shards
        last, joined = 0, bit
        for block in new:
            shard = shards[block & _SHARD]
            held = shard.setdefault(block, bit)
            if held is not bit:
                if held is not last:
                    last, joined = held, held | bit
                shard[block] = joined
        if recency.size > self.capacity:
            self._evict(recency.size - self.capacity)
        grown = (recency.size - size) * BLOCK_BYTES + (len(recency) - turns) * TURN_BYTES
        self._budget.used += grown
        return turn

    def shrink(self, blocks: int) -> None:
        """See `Tenant.shrink`."""
        before = self.used()
        self._evict(blocks)
        self._budget.used += self.used() - before

    def _evict(self, blocks: int) -> None:
        if blocks <= 0:
            return
        bit, shards = self.bit, self._shards
        for block in self.recency.evict(blocks):
            shard = shards[block & _SHARD]
            held = shard.pop(block, bit)
            if held is not bit and held != bit:
                shard[block] = held & ~bit


class PrefixIndex:
    """The prefix cache of one pool's endpoints.

    Attributes:
        told: called with each turn that is added here; None = nobody follows.
    """

    def __init__(self, budget: Budget) -> None:
        self.told: Callable[[Holding, int], None] | None = None
        self._budget = budget
        self._shards: list[dict[int, int]] = [{} for _ in range(SHARDS)]
        self._holdings: dict[str, Holding] = {}
        self._of: dict[object, Holding] = {}
        self._asked: Sequence[object] = ()
        self._asked_lanes: list[int] = []
        self._leaving: list[Holding] = []
        self._departed: dict[str, None] = {}
        self._free: list[int] = []
        self._lanes = 0
        self._alive = 0

    def __del__(self) -> None:
        """Gone with its pool: its bytes count no more, its parts are freed one by one."""
        for each in (*self._holdings.values(), *self._leaving):
            self._budget.used -= each.used()
            self._budget.dismiss(each)
        self._budget.bury(self._shards)

    def listed(self, endpoints: Iterable[Known]) -> None:
        """These are the pool's endpoints; what was known of others is forgotten at once."""
        of: dict[object, Holding] = {}
        for known in endpoints:
            holding = self._hold(identity(known.endpoint))
            of[known] = holding
        self._of = of
        self._asked = ()
        self._asked_lanes = []
        kept = set(of.values())
        for holding in [each for each in self._holdings.values() if each not in kept]:
            del self._holdings[holding.key]
            holding.gone = True
            self._leaving.append(holding)
            self._departed[holding.key] = None
        for holding in kept:
            self._departed.pop(holding.key, None)
        while len(self._departed) > MAX_DEPARTED:
            del self._departed[next(iter(self._departed))]
        self._alive = sum(holding.bit for holding in self._holdings.values())
        self._sweep(SWEPT_AT_ONCE)

    def _hold(self, key: str) -> Holding:
        holding = self._holdings.get(key)
        if holding is None:
            if self._free:
                lane = self._free.pop()
            else:
                lane = self._lanes
                self._lanes += 1
            holding = self._holdings[key] = Holding(key, lane, self._shards, self._budget)
            self._alive |= holding.bit
        return holding

    def _sweep(self, blocks: int) -> None:
        """Take blocks of departed endpoints out of the entries."""
        while self._leaving and blocks > 0:
            holding = self._leaving[-1]
            size = holding.recency.size
            holding.shrink(blocks)
            blocks -= size
            if not holding.recency.size:
                self._leaving.pop()
                self._free.append(holding.lane)
                self._budget.dismiss(holding)

    def find(self, key: str) -> Holding | None:
        """What an endpoint has, listed or told of; None = it has departed, or they are too many."""
        holding = self._holdings.get(key)
        if holding is not None or key in self._departed:
            return holding
        unlisted = len(self._holdings) - len(self._of)
        return self._hold(key) if unlisted < MAX_UNLISTED else None

    def counts(self, chain: list[int]) -> tuple[int, ...] | None:
        """How many of the chain's blocks each lane has, up to the first that nobody has; None =
        none has any."""
        shards = self._shards
        alive = self._alive if self._leaving else -1
        total = times = 0
        last: int | None = None
        for block in chain:
            held = shards[block & _SHARD].get(block)
            if held is None:
                break
            if held is last:  # a stretch of one request's blocks shares one number
                times += 1
                continue
            if not held & alive:
                break
            if last is not None:
                total += last * times
            last, times = held, 1
        if last is not None:
            total += last * times
        if alive != -1:
            total &= alive * _FULL_LANE
        if not total:
            return None
        data = total.to_bytes(self._lanes * _LANE_BYTES, "little")
        return _lanes_of(self._lanes).unpack(data)

    def lanes(self, endpoints: Sequence[object]) -> list[int]:
        """The lanes of endpoints that are listed."""
        if endpoints is self._asked:
            return self._asked_lanes
        of = self._of
        lanes = [of[endpoint].lane for endpoint in endpoints]
        if type(endpoints) is tuple:
            self._asked, self._asked_lanes = endpoints, lanes
        return lanes

    def lane(self, endpoint: object) -> int | None:
        """The lane of an endpoint; None = it is not listed."""
        holding = self._of.get(endpoint)
        return None if holding is None else holding.lane

    def add(self, endpoint: object, chain: list[int], capacity: int) -> None:
        """A request with this chain goes to an endpoint; one that is not listed is passed over."""
        holding = self._of.get(endpoint)
        if holding is not None and chain:
            self.add_to(holding, chain, capacity)

    def add_to(self, holding: Holding, path: list[int], capacity: int) -> None:
        """Likewise, for any stretch of a chain that `Recency.touch` takes."""
        if not holding.capacity:
            holding.capacity = max(1, min(capacity, MAX_CAPACITY))
        turn = holding.add(path)
        if self.told is not None:
            self.told(holding, turn)
        if self._leaving:
            self._sweep(SWEPT_PER_ADD)
        self._budget.make_room()

    def has(self, holding: Holding, block: int) -> bool:
        """Whether an endpoint has a block."""
        return bool(self._shards[block & _SHARD].get(block, 0) & holding.bit)

    def holdings(self) -> Iterator[Holding]:
        """Of the endpoints that are here, listed or told of."""
        return iter(tuple(self._holdings.values()))

    def __len__(self) -> int:
        """Blocks at endpoints that are here."""
        return sum(holding.recency.size for holding in self._holdings.values())

"""What all prefix indexes of a worker may hold together, in bytes.

Each endpoint has its own bound; but pools and endpoints are many, and a worker has one memory. At
the limit, whoever adds takes the room from those who have the most: each endpoint in turn that
holds at least the average. An index that is dropped with its pool is freed in small parts.
"""

from collections import OrderedDict, deque
from typing import Protocol

BLOCK_BYTES = 140
"""A block at one endpoint: its entry, its hash, its place in a turn (measured; tests/bench)."""
TURN_BYTES = 260
"""A turn besides its blocks."""
DEFAULT_BYTES = 256 * 1024 * 1024
"""Of a worker: 48 endpoints that are full."""
EVICT_AT_ONCE = 256
"""Blocks that are evicted from one endpoint at a time."""
MAX_STEPS = 512
"""Endpoints that are looked at for room within one pick."""


class Tenant(Protocol):
    """An endpoint's part of an index."""

    def used(self) -> int:
        """Bytes, as estimated."""
        ...

    def shrink(self, blocks: int) -> None:
        """Evict so many blocks."""
        ...


class Budget:
    """One for all pools of a worker.

    Attributes:
        used: bytes, as estimated.
        limit: bytes.
    """

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self._tenants: OrderedDict[Tenant, None] = OrderedDict()
        self._buried: deque[dict[int, int]] = deque()

    def admit(self, tenant: Tenant) -> None:
        """One more endpoint, until it is dismissed."""
        self._tenants[tenant] = None

    def dismiss(self, tenant: Tenant) -> None:
        """This endpoint's part is empty and stays so, or its index is gone."""
        self._tenants.pop(tenant, None)

    def bury(self, shards: list[dict[int, int]]) -> None:
        """Parts of an index that is gone, to be freed one by one: all at once takes too long."""
        self._buried.extend(shard for shard in shards if shard)

    def make_room(self) -> None:
        """After something was added: free a part of what is buried, and evict what is too much."""
        if self._buried:
            self._buried.popleft()
        steps = min(MAX_STEPS, len(self._tenants)) if self.used > self.limit else 0
        for _ in range(steps):
            tenant = next(iter(self._tenants))
            self._tenants.move_to_end(tenant)
            if tenant.used() * len(self._tenants) >= self.used:
                tenant.shrink(EVICT_AT_ONCE)
                if self.used <= self.limit:
                    return

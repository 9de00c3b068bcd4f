"""The pods of one namespace, indexed so that one pod's change costs as little as its labels. Pure.

A namespace may hold a thousand pools and thousands of pods; asking every pool about every pod
would take seconds of the serving loop. Every pool stands under one pair of its selector, every pod
under all pairs of its labels.
"""

from collections.abc import Iterable

from fleet.model import Endpoint, Pod, Pool, PoolRef, endpoints_of

Pair = tuple[str, str]


class PodIndex:
    """Pods and the pools that may select them; one namespace."""

    def __init__(self) -> None:
        self._pods: dict[Pair, dict[str, Pod]] = {}
        self._pools: dict[Pair, dict[PoolRef, Pool]] = {}
        self._pair_of: dict[PoolRef, Pair] = {}

    def put_pool(self, pool: Pool) -> None:
        """Follow `pool`, or its newer form."""
        self.drop_pool(pool.ref)
        if pool.selector:
            pair = min(pool.selector.items())
            self._pair_of[pool.ref] = pair
            self._pools.setdefault(pair, {})[pool.ref] = pool

    def drop_pool(self, ref: PoolRef) -> None:
        """Follow the pool no longer."""
        pair = self._pair_of.pop(ref, None)
        if pair is not None:
            pools = self._pools[pair]
            del pools[ref]
            if not pools:
                del self._pools[pair]

    def change(self, old: Pod | None, new: Pod | None) -> set[PoolRef]:
        """A pod came, changed or went; returns the followed pools whose endpoints it may touch."""
        touched: set[PoolRef] = set()
        if old is not None:
            touched.update(self._selecting(old))
            self._remove(old)
        if new is not None:
            for pair in new.labels.items():
                self._pods.setdefault(pair, {})[new.name] = new
            touched.update(self._selecting(new))
        return touched

    def _selecting(self, pod: Pod) -> Iterable[PoolRef]:
        for pair in pod.labels.items():
            for ref, pool in self._pools.get(pair, {}).items():
                if pool.selects(pod):
                    yield ref

    def _remove(self, pod: Pod) -> None:
        for pair in pod.labels.items():
            pods = self._pods.get(pair)
            if pods is not None and pods.pop(pod.name, None) is not None and not pods:
                del self._pods[pair]

    def endpoints(self, pool: Pool) -> tuple[Endpoint, ...]:
        """The ready endpoints of `pool`, ordered by pod name and rank."""
        return endpoints_of(pool, self._candidates(pool))

    def unready(self, pool: Pool) -> tuple[Pod, ...]:
        """The pods of `pool` that are no endpoints now, ordered by name."""
        found = (pod for pod in self._candidates(pool) if not pod.ready and pool.selects(pod))
        return tuple(sorted(found, key=lambda pod: pod.name))

    def _candidates(self, pool: Pool) -> Iterable[Pod]:
        """All pods that have one pair of the selector: of the rarest one."""
        if not pool.selector:
            return ()
        pairs = (self._pods.get(pair, {}) for pair in pool.selector.items())
        return min(pairs, key=len).values()

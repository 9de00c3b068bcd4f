"""What the page of a moment is written from.

Only lists are copied on the serving loop. The numbers in them are read while the page is written,
in a thread: each is right, and two of them may be a request apart. Copying the buckets of a
thousand pools first would keep every stream waiting for milliseconds.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from epp_worker.extproc.observer import SessionObserver
from epp_worker.requests.record import RequestRecord
from epp_worker.requests.rows import PoolRows, Table
from epp_worker.scheduling.contract import Picker
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.pool import PoolState
from fleet.model.identity import PoolRef


@dataclass(frozen=True, slots=True)
class HeldPool:
    """A pool as it is held here.

    Attributes:
        owned: this worker owns it: others do not show its gauges.
        tokens: tokens in flight are counted, as a plugin asks for them.
    """

    ref: PoolRef
    endpoints: Sequence[EndpointState]
    owned: bool
    tokens: bool


@dataclass(frozen=True, slots=True)
class Moment:
    """See the module.

    Attributes:
        pools: that are held.
        rows: requests, by pool.
        poll_errors: scrapes of endpoints that failed, ever.
        twins: show the router's old names too.
    """

    pools: Sequence[HeldPool] = ()
    rows: Sequence[tuple[PoolRef, PoolRows]] = ()
    poll_errors: int = 0
    twins: bool = False


class Requests:
    """Follows the requests of a worker; called for the observer of each session.

    Args:
        inner: is told everything, too.
        now: seconds that only grow.
        twins: show the router's old names too.
    """

    def __init__(
        self, inner: SessionObserver, now: Callable[[], float], *, twins: bool = False
    ) -> None:
        self.table = Table()
        self._inner = inner
        self._now = now
        self._twins = twins

    def __call__(self, picker: Picker) -> RequestRecord:
        """The observer of a session that picks from `picker`."""
        return RequestRecord(self._inner, self.table, picker, self._now)

    def keep(self, held: Iterable[Collection[PoolRef]]) -> None:
        """Forget what is known of pools that are not among these; 0.4 ms for a thousand."""
        if len(self.table):
            self.table.keep(set[PoolRef]().union(*held))

    def moment(self, held: Iterable[tuple[PoolState, bool]], poll_errors: int) -> Moment:
        """What a page can be written from.

        Args:
            held: each pool's state, and whether it is owned here; a pool that is there twice counts
                where it is owned.
        """
        pools: dict[PoolRef, HeldPool] = {}
        for state, owned in held:
            ref = state.pool.ref
            if ref not in pools or owned:
                scheduler = state.scheduler
                tokens = scheduler is not None and scheduler.counts_tokens
                pools[ref] = HeldPool(ref, tuple(state.endpoints()), owned, tokens)
        self.table.keep(pools.keys())
        return Moment(tuple(pools.values()), self.table.pools(), poll_errors, self._twins)

"""A route group as a session sees it: nearly always one pool, else told apart by the model.

Pools that share a Service and port cannot be told apart by anything on the stream but the model
that the request asks for: what a pool's annotation lists, or what its model servers say that they
serve. A listed model is never anybody else's. What stays ambiguous is refused: guessing would hand
one tenant's request to another tenant's servers.
"""

from collections.abc import Sequence
from typing import Final

from epp_worker.scheduling.contract import Pick, PickRequest, Refusal
from epp_worker.scheduling.pool import NO_ENDPOINTS, PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Pool
from fleet.model.rewrites import NO_INTENTS, Intents

MODELS_ANNOTATION: Final = "epp-fleet.dev/models"
"""Comma list of the models that a pool serves."""

_NO_POOL: Final = Refusal(503, NO_ENDPOINTS, "No pool is served here.")
_NO_MODEL: Final = Refusal(
    400,
    "",
    "Several pools share this endpoint picker and the request names no model to choose by.",
)
_UNKNOWN: Final = Refusal(
    400, "", "Several pools share this endpoint picker and none of them serves this model."
)
_AMBIGUOUS: Final = Refusal(
    400, "", "Several pools share this endpoint picker and more than one serves this model."
)
_NOT_TOLD: Final = Refusal(
    503,
    NO_ENDPOINTS,
    "Several pools share this endpoint picker, and what one of them serves is not known yet.",
)


def models_of(pool: Pool) -> frozenset[str]:
    """The models that a pool's annotation lists."""
    listed = pool.annotations.get(MODELS_ANNOTATION, "")
    return frozenset(name for part in listed.split(",") if (name := part.strip()))


def lists_models(pool: Pool) -> bool:
    """Whether a pool says itself what it serves, be it nothing."""
    return MODELS_ANNOTATION in pool.annotations


class GroupPicker:
    """Picks for all pools of one route group; see `epp_worker.scheduling.contract.Picker`."""

    __slots__ = ("_by_model", "_former", "_only", "_pools", "_untold")

    def __init__(self, pools: Sequence[PoolState] = ()) -> None:
        self._only: PoolState | None = None
        self._former: PoolState | None = None
        self.set_pools(pools)

    def set_pools(self, pools: Sequence[PoolState]) -> None:
        """Replace the pools; call it too when a pool's annotations or learned models changed."""
        alone = self._only or self._former
        self._pools = tuple(pools)
        self._only = self._pools[0] if len(self._pools) == 1 else None
        self._by_model: dict[str, list[PoolState]] = {}
        for state in self._pools:
            for model in models_of(state.pool):
                self._by_model.setdefault(model, []).append(state)
        learned = [state for state in self._pools if not lists_models(state.pool)]
        self._untold = any(state.models is None for state in learned)
        # A pool that had the Service to itself keeps what nobody else is known to serve, until
        # all of that is known: a second pool must not interrupt it.
        self._former = alone if self._untold and alone in self._pools else None
        listed = frozenset(self._by_model)
        for state in learned:
            for model in (state.models or frozenset()) - listed:
                self._by_model.setdefault(model, []).append(state)

    def pools(self) -> tuple[PoolState, ...]:
        """The pools of the group."""
        return self._pools

    @property
    def needs_model(self) -> bool:
        """See `epp_worker.scheduling.contract.Picker.needs_model`."""
        return len(self._pools) > 1

    def pick(self, request: PickRequest) -> Pick | Refusal:
        """See `epp_worker.scheduling.contract.Picker.pick`."""
        pool = self._pool_for(request.model)
        return pool if isinstance(pool, Refusal) else pool.pick(request)

    def intents(self, model: str | None) -> Intents:
        """See `epp_worker.scheduling.contract.Picker.intents`."""
        pool = self._pool_for(model)
        return NO_INTENTS if isinstance(pool, Refusal) else pool.intents

    def pool_of(self, model: str | None) -> PoolRef | None:
        """See `epp_worker.scheduling.contract.Picker.pool_of`."""
        pool = self._pool_for(model)
        return None if isinstance(pool, Refusal) else pool.pool.ref

    def names(self, model: str) -> bool:
        """See `epp_worker.scheduling.contract.Picker.names`."""
        return model in self._by_model or any(model in pool.intents.models for pool in self._pools)

    def _pool_for(self, model: str | None) -> PoolState | Refusal:
        if self._only is not None:
            return self._only
        if not self._pools:
            return _NO_POOL
        serving = () if model is None else self._by_model.get(model, ())
        if len(serving) == 1:
            return serving[0]
        if serving:
            return _AMBIGUOUS
        if self._former is not None:
            return self._former
        if model is None:
            return _NO_MODEL
        return _NOT_TOLD if self._untold else _UNKNOWN

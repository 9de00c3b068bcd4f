"""A route group as a session sees it: nearly always one pool, else told apart by the model.

Pools that share a Service and port cannot be told apart by anything on the stream but the model
that the request asks for. What stays ambiguous is refused: guessing would hand one tenant's
request to another tenant's servers.
"""

from collections.abc import Sequence

from epp_worker.scheduling.contract import Pick, PickRequest, Refusal
from epp_worker.scheduling.pool import NO_ENDPOINTS, PoolState
from fleet.model.identity import PoolRef
from fleet.model.pools import Pool
from fleet.model.rewrites import NO_INTENTS, Intents

MODELS_ANNOTATION = "epp-fleet.dev/models"
"""Comma list of the models that a pool serves."""

_NO_POOL = Refusal(503, NO_ENDPOINTS, "No pool is served here.")
_NO_MODEL = Refusal(
    400,
    "",
    "Several pools share this endpoint picker and the request names no model to choose by.",
)
_UNKNOWN = Refusal(
    400, "", "Several pools share this endpoint picker and none of them lists this model."
)
_AMBIGUOUS = Refusal(
    400, "", "Several pools share this endpoint picker and more than one lists this model."
)


def models_of(pool: Pool) -> frozenset[str]:
    """The models that a pool's annotation lists."""
    listed = pool.annotations.get(MODELS_ANNOTATION, "")
    return frozenset(name for part in listed.split(",") if (name := part.strip()))


class GroupPicker:
    """Picks for all pools of one route group; see `epp_worker.scheduling.contract.Picker`."""

    __slots__ = ("_by_model", "_only", "_pools")

    def __init__(self, pools: Sequence[PoolState] = ()) -> None:
        self.set_pools(pools)

    def set_pools(self, pools: Sequence[PoolState]) -> None:
        """Replace the pools; call it too when a pool's annotations changed."""
        self._pools = tuple(pools)
        self._only = self._pools[0] if len(self._pools) == 1 else None
        self._by_model: dict[str, list[PoolState]] = {}
        for state in self._pools:
            for model in models_of(state.pool):
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
        if model is None:
            return _NO_MODEL
        serving = self._by_model.get(model, ())
        if len(serving) == 1:
            return serving[0]
        return _AMBIGUOUS if serving else _UNKNOWN

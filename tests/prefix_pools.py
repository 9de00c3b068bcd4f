"""Endpoints, requests and plugin contexts for tests of the prefix cache."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epp_worker.scheduling.configured import Schedulers
from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import PluginContext
from epp_worker.scheduling.pool import PoolState
from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.index import PrefixIndex
from epp_worker.scheduling.prefix.slot import PREFIX, PrefixSlot
from epp_worker.scheduling.slots import PoolSlots
from epp_worker.scheduling.state_slots import StateSlot
from fleet.model import PoolRef
from fleet.model.pools import Endpoint, Pool


def endpoint(number: int, uid: str = "", rank: int = 0) -> EndpointState:
    """The endpoint of pod `pod-<number>`."""
    address = f"10.0.{number >> 8}.{number & 255}:{8000 + rank}"
    return EndpointState(Endpoint(f"pod-{number}", uid or f"uid-{number}", address, rank))


def endpoints(count: int) -> list[EndpointState]:
    """Pods 0, 1, ..."""
    return [endpoint(number) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Said:
    """See `epp_worker.scheduling.contract.Hints`."""

    prompt: bytes = b""
    token_ids: Sequence[int] | None = None
    cache_salt: str = ""
    stream: bool = False
    max_tokens: int | None = None

    def beginning(self, size: int) -> bytes:
        """See `epp_worker.scheduling.contract.Hints.beginning`."""
        return self.prompt[:size]


def request(prompt: bytes = b"", model: str | None = "m", **said: Any) -> PickRequest:
    """A request with a prompt."""
    return PickRequest(model, None, lambda _: None, hints=Said(prompt, **said))


def pool_of(
    pods: int, slots: PoolSlots | None = None, schedulers: Schedulers | None = None
) -> PoolState:
    """A pool of pods 0, 1, ...; at a worker of its own if no slots are given."""
    ref = PoolRef("ns", "pool")
    state = PoolState(
        Pool(ref, "uid", {"app": "pool"}, (8000,), None),
        now=lambda: 0.0,
        rng=random.Random(1),
        new_slot=PoolSlots(Budget(1 << 30)) if slots is None else slots,
        schedulers=(Schedulers() if schedulers is None else schedulers).scheduler,
    )
    state.set_endpoints([endpoint(number).endpoint for number in range(pods)])
    return state


def index_of(pool: PoolState) -> PrefixIndex:
    """The prefix index of a pool."""
    slot = pool.slot(PREFIX)
    assert isinstance(slot, PrefixSlot)
    return slot.index


def context(
    slot: Callable[[str], StateSlot | None], name: str = "it", **others: Any
) -> PluginContext:
    """A plugin's context; `others` are instances that it can find, with `_` for `-`."""
    known: Mapping[str, Any] = {key.replace("_", "-"): value for key, value in others.items()}
    return PluginContext(
        name=name,
        pool=PoolRef("ns", "pool"),
        now=lambda: 0.0,
        random=random.Random(1).random,
        find=known.get,
        slot=slot,
    )

"""Endpoints, requests and plugin contexts for tests of the prefix cache."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epp_worker.scheduling.contract import PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.plugin import PluginContext
from epp_worker.scheduling.prefix.budget import Budget
from epp_worker.scheduling.prefix.slot import PrefixSlot
from fleet.model import PoolRef
from fleet.model.pools import Endpoint


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


def request(prompt: bytes = b"", model: str | None = "m", **said: Any) -> PickRequest:
    """A request with a prompt."""
    return PickRequest(model, None, lambda _: None, hints=Said(prompt, **said))


class Bench:
    """A pool's prefix slot, and contexts for plugins that use it."""

    def __init__(self, pods: Sequence[EndpointState], limit: int = 1 << 30) -> None:
        self.budget = Budget(limit)
        self.slot = PrefixSlot(self.budget)
        self.slot.listed(pods)
        self.found: dict[str, Any] = {}
        self.random = random.Random(1)

    def context(self, name: str = "it", **others: Any) -> PluginContext:
        """A plugin's context; `others` are instances that it can find."""
        known: Mapping[str, Any] = {key.replace("_", "-"): value for key, value in others.items()}
        return PluginContext(
            name=name,
            pool=PoolRef("ns", "pool"),
            now=lambda: 0.0,
            random=self.random.random,
            find=known.get,
            slot={"prefix": self.slot}.get,
            oldest=lambda: float("-inf"),
        )

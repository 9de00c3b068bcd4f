"""Endpoints, requests and schedulers of one pool, for tests of plugins."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from epp_worker.scheduling.contract import NO_HINTS, Hints, PickRequest
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.faults import PluginFaults
from epp_worker.scheduling.plugin import PluginContext, PluginType
from epp_worker.scheduling.registry import BUILT_IN
from epp_worker.scheduling.scheduler import PoolView, Scheduler
from epp_worker.scheduling.state_slots import StateSlot, seen_tables
from fleet.model.identity import PoolRef
from fleet.model.pools import Endpoint
from fleet.picking import decode

POOL = PoolRef("ns", "chat")
HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


def endpoint(
    index: int,
    *,
    queue: float | None = 0.0,
    kv: float | None = 0.0,
    running: float | None = 0.0,
    inflight: int = 0,
    unseen: int = 0,
    tokens: int = 0,
    at: float = 0.0,
    labels: Mapping[str, str] | None = None,
    active: Iterable[str] = (),
    waiting_models: Iterable[str] = (),
    most_models: int | None = None,
    port: int = 8000,
    rank: int = 0,
) -> EndpointState:
    """Pod `pod-<index>` at 192.168.1.<index + 1>, scraped at `at`.

    Args:
        unseen: of `inflight`, those picked since the scrape.
    """
    address = f"192.168.1.{index + 1}:{port}"
    state = EndpointState(
        Endpoint(f"pod-{index}", f"u{index}", address, rank, labels=dict(labels or {}))
    )
    state.scraped(waiting=queue, running=running, kv=kv, at=at, inflight=inflight - unseen)
    state.inflight = inflight
    state.tokens = tokens
    state.lora_running = frozenset(active)
    state.lora_waiting = frozenset(waiting_models)
    state.lora_max = most_models
    return state


class Said(msgspec.Struct):
    """Hints of a body."""

    prompt: bytes = b""
    token_ids: Sequence[int] | None = None
    stream: bool = False
    max_tokens: int | None = None
    cache_salt: str = ""

    def beginning(self, size: int) -> bytes:
        """See `epp_worker.scheduling.contract.Hints.beginning`."""
        return self.prompt[:size]


def request(
    model: str | None = "m",
    *,
    headers: Mapping[str, str] | None = None,
    priority: int = 0,
    prompt: bytes = b"",
    tokens: int = 0,
    max_tokens: int | None = None,
) -> PickRequest:
    """A request; one without model and prompt has no body."""
    hints: Hints = NO_HINTS
    if model is not None or prompt or tokens:
        ids = list(range(tokens)) if tokens else None
        hints = Said(prompt=prompt, token_ids=ids, max_tokens=max_tokens)
    return PickRequest(
        model, None, dict(headers or {}).get, priority=priority, hints=hints, target_model=None
    )


class Bench:
    """The neighbourhood of plugins under test; `time` is the clock."""

    def __init__(self, seed: int = 1) -> None:
        self.time = 0.0
        self.stale_after = 90.0
        self.rng = random.Random(seed)
        self.faults = PluginFaults()
        self.slots: dict[str, StateSlot] = {}
        self.plugins: dict[str, Any] = {}

    def slot(self, name: str) -> StateSlot | None:
        """As a pool."""
        if name not in self.slots:
            made = seen_tables(name, lambda: self.time)
            if made is None:
                return None
            self.slots[name] = made
        return self.slots[name]

    def make(self, type_: str, types: Mapping[str, PluginType] = BUILT_IN, **given: Any) -> Any:
        """One plugin; parameters as in a configuration."""
        kind = types[type_]
        context = PluginContext(
            type_,
            POOL,
            lambda: self.time,
            self.rng.random,
            self.plugins.get,
            self.slot,
            lambda: self.time - self.stale_after,
        )
        return kind.make(msgspec.convert(given, kind.parameters), context)

    def scheduler(
        self,
        config: str,
        types: Mapping[str, PluginType] = BUILT_IN,
        *,
        fuse: bool = True,
        **extra: Any,
    ) -> Scheduler:
        """By a configuration without its first two lines."""
        view = PoolView(
            POOL,
            lambda: self.time,
            self.rng.random,
            self.slot,
            lambda: self.time - self.stale_after,
        )
        read = decode(HEAD + config, name="test", experimental=True, **extra)
        return Scheduler(read, view, types, self.faults, fuse=fuse)

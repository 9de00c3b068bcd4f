"""One endpoint and what is known of it."""

from collections.abc import Callable
from typing import Final, NamedTuple

from epp_worker.extproc.replies import pick_reply
from epp_worker.scheduling.detached import Detached
from epp_worker.scheduling.subset import join, split_address
from fleet.model.pools import Endpoint

NEVER: Final = float("-inf")
MAX_PICKED_MODELS: Final = 8
MAX_PICKED_LENGTH: Final = 128
OTHER_MODELS: Final = "other"
NO_ADAPTERS: frozenset[str] = frozenset()


class ToldMetrics(NamedTuple):
    """An endpoint's metrics by another worker's word; fields as in `EndpointState`.

    Attributes:
        at: when they were scraped, by our own clock.
    """

    waiting: float | None
    running: float | None
    kv: float | None
    at: float
    seen: int
    failures: int
    refused: bool


class Changes:
    """How often the metrics of a pool's endpoints have changed: what was reckoned from them holds
    as long as the count does."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class EndpointState:
    """An endpoint and what is known of it.

    Attributes:
        address: `ip:port` as it goes on the wire.
        ip: normalised ip, for subset hints without a port.
        key: normalised `ip:port`, for subset hints.
        waiting: requests queued in the model server; None = unknown.
        running: requests being computed; None = unknown.
        kv: KV cache in use, 0..1; None = unknown.
        metrics_at: when the three above were asked for, monotonic seconds; -inf = never.
        inflight: open requests that are known of: our own, and those of other workers.
        foreign: the part of `inflight` that other workers have told of.
        inflight_seen: `inflight` at `metrics_at`; what came later the metrics cannot show.
        failures: failed scrapes since the last good one.
        refused: the last scrape found nobody listening.
        detached: the part of `inflight` that is an estimate.
        tokens: prompt tokens of our own requests whose answers have not begun, as estimated;
            counted only where a plugin asks for it.
        lora_running: LoRA adapters that requests are being computed with, as last scraped.
        lora_waiting: LoRA adapters that queued requests wait for.
        lora_max: LoRA adapters that may run at once; None = unknown.
        block_size: tokens in a block of the KV cache; None = unknown.
        blocks: blocks of the KV cache; None = unknown.
        picks: how often it was picked, by the model that was asked for; names are the clients',
            so that only `MAX_PICKED_MODELS` short ones are told apart.
        headers_reply: prebuilt ext_proc answer that names this endpoint.
        touched: called at each change of the counts and the metrics, if somebody follows.
        changes: of all endpoints of its pool; grows with each change of `waiting`, `kv`,
            `metrics_at` or `inflight_seen`, whoever makes it.
    """

    __slots__ = (
        "address",
        "block_size",
        "blocks",
        "changes",
        "detached",
        "endpoint",
        "failures",
        "foreign",
        "headers_reply",
        "inflight",
        "inflight_seen",
        "ip",
        "key",
        "kv",
        "lora_max",
        "lora_running",
        "lora_waiting",
        "metrics_at",
        "picks",
        "refused",
        "running",
        "tokens",
        "touched",
        "waiting",
    )

    def __init__(self, endpoint: Endpoint) -> None:
        parts = split_address(endpoint.address)
        if parts is None or parts[1] is None:
            raise ValueError(f"endpoint of pod {endpoint.pod} has no ip:port: {endpoint.address}")
        self.endpoint = endpoint
        self.address = endpoint.address
        self.ip = parts[0]
        self.key = join(parts[0], parts[1])
        self.waiting: float | None = None
        self.running: float | None = None
        self.kv: float | None = None
        self.metrics_at = NEVER
        self.inflight = 0
        self.foreign = 0
        self.inflight_seen = 0
        self.failures = 0
        self.refused = False
        self.detached = Detached()
        self.tokens = 0
        self.lora_running = NO_ADAPTERS
        self.lora_waiting = NO_ADAPTERS
        self.lora_max: int | None = None
        self.block_size: int | None = None
        self.blocks: int | None = None
        self.picks: dict[str, int] = {}
        self.headers_reply = pick_reply(endpoint.address)
        self.touched: Touched | None = None
        self.changes = Changes()

    @property
    def name(self) -> str:
        """As the llm-d router names endpoints."""
        return f"{self.endpoint.pod}-rank-{self.endpoint.rank}"

    def picked_for(self, model: str) -> None:
        """One more pick for a request of this model."""
        picks = self.picks
        if model not in picks and (
            len(picks) >= MAX_PICKED_MODELS or len(model) > MAX_PICKED_LENGTH
        ):
            model = OTHER_MODELS
        picks[model] = picks.get(model, 0) + 1

    def scraped(
        self,
        *,
        waiting: float | None,
        running: float | None,
        kv: float | None,
        at: float,
        inflight: int,
    ) -> None:
        """Note a good scrape that was asked for at `at`, with `inflight` requests open then.

        A value that the page did not have is unknown from now on. A page with none of them proves
        only that the server answers.
        """
        before = (self.waiting, self.running, self.kv, self.failures, self.inflight_seen)
        open_before = self.inflight
        self.changes.count += 1
        self.failures = 0
        self.refused = False
        self.waiting, self.running, self.kv = waiting, running, kv
        if waiting is not None or running is not None or kv is not None:
            self.metrics_at = at
            self.inflight_seen = inflight
        if self.detached:
            self._settle(at, inflight)
        news = before != (waiting, running, kv, 0, self.inflight_seen)
        if self.touched is not None and (news or open_before != self.inflight):
            self.touched(self)

    def described(
        self,
        *,
        lora_running: frozenset[str],
        lora_waiting: frozenset[str],
        lora_max: int | None,
        block_size: int | None,
        blocks: int | None,
    ) -> None:
        """Note what a good scrape says besides; what its page did not have is unknown again."""
        self.lora_running = lora_running
        self.lora_waiting = lora_waiting
        self.lora_max = lora_max
        self.block_size = block_size
        self.blocks = blocks

    def detach(self, at: float) -> None:
        """A request that is counted here goes on unseen from `at` on."""
        gone = self.detached.add(at)
        if gone:
            self.changes.count += 1
            self.inflight -= gone
            self.inflight_seen = max(0, self.inflight_seen - gone)
            if self.touched is not None:
                self.touched(self)

    def _settle(self, at: float, inflight: int) -> None:
        """Let go of detached requests that the figures of a scrape leave no room for."""
        tracked = inflight - len(self.detached)
        gone = self.detached.settle(
            at=at, running=self.running, waiting=self.waiting, tracked=tracked
        )
        self.inflight -= gone
        self.inflight_seen = max(0, self.inflight_seen - gone)

    def scrape_failed(self, *, refused: bool) -> None:
        """Note a failed scrape; the last values stay until they are overdue."""
        news = not self.failures or refused != self.refused
        self.failures += 1
        self.refused = refused
        if news and self.touched is not None:
            self.touched(self)

    def heard(self, told: ToldMetrics) -> None:
        """Another worker has scraped it. That is not told on: it would come back as news."""
        self.changes.count += 1
        self.waiting, self.running, self.kv = told.waiting, told.running, told.kv
        self.metrics_at, self.inflight_seen = told.at, told.seen
        self.failures, self.refused = told.failures, told.refused

    def told(self, foreign: int) -> None:
        """Other workers have so many requests open here."""
        if foreign != self.foreign:
            self.inflight += foreign - self.foreign
            self.foreign = foreign
            if self.touched is not None:
                self.touched(self)


Touched = Callable[[EndpointState], None]
"""Told of an endpoint whose counts or metrics have changed; must be quick: it is on every pick."""

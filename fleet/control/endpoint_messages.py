"""What a coordinator asks a worker of one pool's endpoints, on the internal port.

Asked for people who look at a pool; nothing is decided by it. MessagePack like
`fleet.control.messages`, with the same rules for newer formats.
"""

import msgspec

from fleet.control.messages import FORMAT, SERVICE
from fleet.control.questions import QuestionMethod
from fleet.model import Hold

MAX_ENDPOINTS = 1_000
"""Rows in one answer, the ready ones first; `total` and `ready` count all."""


class AskEndpoints(msgspec.Struct, frozen=True, tag="ask_endpoints"):
    """Which endpoints has this pool, and what is known of each?"""

    fleet: str
    namespace: str
    name: str
    format: int = FORMAT


class EndpointRow(msgspec.Struct, frozen=True):
    """One endpoint as the worker knows it.

    Attributes:
        address: `ip:port`; "" for a pod that has no IP yet.
        ready: whether picks may name it.
        running, waiting: requests in the model server; None = unknown.
        kv: KV cache in use, 0..1; None = unknown.
        age_ms: since the three were asked for; None = never read.
        inflight: requests open on it, those of other workers included.
        failures: failed scrapes since the last good one.
        refused: the last scrape found nobody listening.
    """

    pod: str
    address: str
    ready: bool
    running: float | None = None
    waiting: float | None = None
    kv: float | None = None
    age_ms: int | None = None
    inflight: int = 0
    failures: int = 0
    refused: bool = False


class PoolEndpoints(msgspec.Struct, frozen=True, tag="pool_endpoints"):
    """The answer.

    Attributes:
        hold: what the worker holds of the pool's group; None = nothing, and it knows no endpoints.
        total: endpoints that there are, ready or not; `endpoints` are at most `MAX_ENDPOINTS`.
        ready: how many of them are ready.
        requests_per_second: to this pool, smoothed over about 10 s.
    """

    fleet: str
    worker: str
    incarnation: str
    namespace: str
    name: str
    hold: Hold | None
    endpoints: tuple[EndpointRow, ...] = ()
    total: int = 0
    ready: int = 0
    requests_per_second: float = 0.0
    format: int = FORMAT


ENDPOINTS = QuestionMethod(f"/{SERVICE}/Endpoints", AskEndpoints, PoolEndpoints)
"""What a coordinator asks a worker."""

"""`GET /api/v1/pools/{ns}/{name}/endpoints`: a pool's endpoints by its owner's word. Pure."""

import msgspec

from coordinator.web.documents import FORMAT
from fleet.control.endpoint_messages import PoolEndpoints


class EndpointDocument(msgspec.Struct, frozen=True):
    """One endpoint. `running`, `waiting` and `kv_usage` (0..1) are null where nothing was read,
    `age_seconds` says how old they are; `address` is empty for a pod without an IP;
    `failed_scrapes` counts those since the last good one, `refused` says that nobody listened."""

    pod: str
    address: str
    ready: bool
    running: float | None
    waiting: float | None
    kv_usage: float | None
    age_seconds: float | None
    inflight: int
    failed_scrapes: int
    refused: bool


class EndpointsDocument(msgspec.Struct, frozen=True):
    """The ready endpoints first; at most 1,000 are listed, `total` and `ready` count all."""

    format: int
    namespace: str
    name: str
    worker: str
    hold: str | None
    total: int
    ready: int
    requests_per_second: float
    endpoints: list[EndpointDocument]
    answered_by: str


def endpoints_document(told: PoolEndpoints, *, answered_by: str) -> EndpointsDocument:
    """The whole document."""
    return EndpointsDocument(
        format=FORMAT,
        namespace=told.namespace,
        name=told.name,
        worker=told.worker,
        hold=None if told.hold is None else told.hold.value,
        total=told.total,
        ready=told.ready,
        requests_per_second=told.requests_per_second,
        endpoints=[
            EndpointDocument(
                pod=each.pod,
                address=each.address,
                ready=each.ready,
                running=each.running,
                waiting=each.waiting,
                kv_usage=each.kv,
                age_seconds=None if each.age_ms is None else each.age_ms / 1e3,
                inflight=each.inflight,
                failed_scrapes=each.failures,
                refused=each.refused,
            )
            for each in told.endpoints
        ],
        answered_by=answered_by,
    )

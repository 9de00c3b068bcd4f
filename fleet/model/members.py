"""A worker as it describes itself in every beat and at the start of every control stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.model.identity import NONE, EpochVersion, GroupKey
from fleet.model.shardmap import Hold


class MemberState(StrEnum):
    """What the leader thinks of a worker."""

    ALIVE = "alive"
    SUSPECT = "suspect"
    DRAINING = "draining"
    DEAD = "dead"


class Signal(StrEnum):
    """What made the leader call a worker dead or suspect."""

    REFUSED = "refused"
    SILENT = "silent"
    INCARNATION = "incarnation"
    POD_GONE = "pod_gone"


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a worker listens, each as `host:port` (IPv6 hosts in brackets)."""

    ext_proc: str
    health: str
    internal: str
    http: str


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker's serving loop says of itself.

    Attributes:
        streams_per_second: ext_proc streams started, smoothed over about 10 s.
        streams_open: ext_proc streams open now.
        loop_lag_ms: how late the serving loop ran its last timer.
    """

    streams_per_second: float = 0.0
    streams_open: int = 0
    loop_lag_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Member:
    """A worker by its own words.

    Attributes:
        id: the pod's name; `worker-0`... in local mode.
        incarnation: random at each start; the same id with another one is another life.
        weight: share of the ring relative to others, 1..100.
        started: wall-clock seconds, for people only.
        draining: the worker's own drain mark.
        seen: highest epoch.version it has seen; a leader below it must re-acquire above.
        holds: what it holds of each group now.
        applied: version of the last share that it applied, from a leader or the store: how new
            `holds` are. A leader's hello raises `seen`, never this.
    """

    id: str
    incarnation: str
    addresses: Addresses
    zone: str = ""
    node: str = ""
    version: str = ""
    weight: int = 1
    started: float = 0.0
    draining: bool = False
    seen: EpochVersion = NONE
    holds: Mapping[GroupKey, Hold] = field(default_factory=dict)
    load: Load = Load()
    applied: EpochVersion = NONE


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A worker as the leader sees it: what `GET /api/v1/workers` shows, alike on every replica.

    Attributes:
        signal: what fired, for a suspect or dead worker; else None.
        owned, standby: groups in the present map.
        why: every signal that had fired, with its age, for people; "" for whoever is well.
    """

    member: Member
    state: MemberState
    signal: Signal | None
    owned: int
    standby: int
    why: str = ""

"""A coordination.k8s.io/v1 Lease as the election reads and writes it. No I/O.

The epoch is an annotation: `leaseTransitions` restarts when the Lease is deleted and is kept for
people only, as are the times, which are the holder's wall clock and decide nothing.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from fleet.kube.contract import Raw
from fleet.kube.names import FLEET_LABEL
from fleet.model import LeaderInfo

EPOCH: Final = "epp-fleet.dev/epoch"
HTTP: Final = "epp-fleet.dev/http"
INTERNAL: Final = "epp-fleet.dev/internal"
REQUEST: Final = "epp-fleet.dev/request"
"""Tells a write that landed although its answer was lost from another one of the same holder."""

MAX_DURATION_SECONDS: Final = 300
"""The longest TTL that settings allow; a Lease that says more is taken for this."""


def lease_name(fleet: str) -> str:
    """The Lease of a fleet, in the fleet's namespace."""
    return f"epp-fleet-{fleet}"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One state of the Lease.

    Attributes:
        holder: "" if nobody holds it.
        epoch: 0 if the annotation is missing or no number.
        duration_seconds: how long an observer waits for the next renewal; 0 if it does not say.
        raw: the object, for the next write.
    """

    name: str
    holder: str
    epoch: int
    http: str
    internal: str
    request: str
    duration_seconds: int
    uid: str
    resource_version: str
    raw: Raw

    @property
    def leader(self) -> LeaderInfo:
        """The holder and where to reach it."""
        return LeaderInfo(self.holder, self.http, self.internal)

    def same_state(self, other: "LeaseRecord | None") -> bool:
        """Whether both are the same write."""
        mine = (self.uid, self.resource_version)
        return other is not None and mine == (other.uid, other.resource_version)

    def older_than(self, other: "LeaseRecord | None") -> bool:
        """Whether this is known to be an earlier state of the same object."""
        if other is None or self.uid != other.uid:
            return False
        mine, others = self.resource_version, other.resource_version
        return mine.isdecimal() and others.isdecimal() and int(mine) < int(others)


def read_lease(raw: Raw) -> LeaseRecord:
    """Read a Lease; fields of a wrong type count as missing."""
    metadata, spec = _section(raw, "metadata"), _section(raw, "spec")
    annotations = _section(metadata, "annotations")
    epoch = _text(annotations, EPOCH)
    duration = spec.get("leaseDurationSeconds")
    return LeaseRecord(
        name=_text(metadata, "name"),
        holder=_text(spec, "holderIdentity"),
        epoch=int(epoch) if epoch.isascii() and epoch.isdigit() and len(epoch) < 20 else 0,
        http=_text(annotations, HTTP),
        internal=_text(annotations, INTERNAL),
        request=_text(annotations, REQUEST),
        duration_seconds=min(duration, MAX_DURATION_SECONDS) if isinstance(duration, int) else 0,
        uid=_text(metadata, "uid"),
        resource_version=_text(metadata, "resourceVersion"),
        raw=raw,
    )


def acquired(
    before: LeaseRecord | None,
    leader: LeaderInfo,
    *,
    name: str,
    fleet: str,
    epoch: int,
    request: str,
    ttl_seconds: float,
    wall: float,
) -> Raw:
    """The Lease, held by `leader` in `epoch`; `before` is what it replaces, if there is one."""
    body = _copy(before, name)
    metadata, spec = body["metadata"], body["spec"]
    metadata["labels"] = {**_section(metadata, "labels"), FLEET_LABEL: fleet}
    metadata["annotations"] = {
        **_section(metadata, "annotations"),
        EPOCH: str(epoch),
        HTTP: leader.http,
        INTERNAL: leader.internal,
        REQUEST: request,
    }
    known = spec.get("leaseTransitions")
    transitions = known if isinstance(known, int) else 0
    if before is not None and before.holder != leader.id:
        transitions += 1
    spec["holderIdentity"] = leader.id
    spec["leaseDurationSeconds"] = math.ceil(ttl_seconds)
    spec["leaseTransitions"] = transitions
    spec["acquireTime"] = spec["renewTime"] = micro_time(wall)
    return body


def renewed(record: LeaseRecord, *, name: str, wall: float) -> Raw:
    """The same holder and epoch, a later time."""
    body = _copy(record, name)
    body["spec"]["renewTime"] = micro_time(wall)
    return body


def released(record: LeaseRecord, *, name: str, wall: float) -> Raw:
    """Nobody's; the epoch stays."""
    body = renewed(record, name=name, wall=wall)
    body["spec"].pop("holderIdentity", None)
    return body


def micro_time(wall: float) -> str:
    """Seconds since 1970 as the API's MicroTime."""
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _copy(record: LeaseRecord | None, name: str) -> Raw:
    """What the next write starts from; what others put there stays."""
    raw = {} if record is None else record.raw
    metadata = {k: v for k, v in _section(raw, "metadata").items() if k != "managedFields"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {**metadata, "name": name},
        "spec": dict(_section(raw, "spec")),
    }


def _section(raw: Raw, name: str) -> dict[str, Any]:
    section = raw.get(name)
    return section if isinstance(section, dict) else {}


def _text(raw: Raw, name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""

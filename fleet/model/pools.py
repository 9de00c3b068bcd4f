"""Pools, pods and the endpoints that follow from them: trimmed to what placing and picking need."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fleet.model.identity import GroupKey, PoolId, PoolRef, PoolReference, host_port

ALSO_SERVE = "epp-fleet.dev/also-serve"
"""Annotation of a pool: a second Service that leads to it, while gateways move over."""

RESPONSE_PHASE = "epp-fleet.dev/response-phase"
"""Annotation of a pool: one of `RESPONSE_PHASES`; what its streams do after the pick."""

RESPONSE_PHASES = ("track", "detach", "drain")

ENGINE_LABELS = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
"""Labels of a pod that name its inference engine, by rank."""

ACTIVE_PORTS = ("llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports")
"""Annotations of a pod that limit it to some of its pool's target ports, by rank: a list with
commas. Without one all are active."""

DEFAULT_PICKER_PORT = 9002
"""Of a pool that names no endpoint picker, and of `extensionRef.portNumber` when absent."""

_SERVICE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class FailureMode(StrEnum):
    """`InferencePool.spec.endpointPickerRef.failureMode`; honoured by the gateway."""

    OPEN = "FailOpen"
    CLOSE = "FailClose"


@dataclass(frozen=True, slots=True)
class Pool:
    """An InferencePool (inference.networking.k8s.io/v1, or the older v1alpha2).

    Attributes:
        selector: matchLabels; all must be equal on a pod of the same namespace. Empty selects none.
        target_ports: 1..8 ports; a pod is one endpoint per port.
        group: the route group its endpointPickerRef names; None without one (nothing routes to it).
        api_version: of the object, as references to it must say it.
        picker_fault: why its endpointPickerRef cannot be served though it has one; `group` is None.
    """

    ref: PoolRef
    uid: str
    selector: Mapping[str, str]
    target_ports: tuple[int, ...]
    group: GroupKey | None
    failure_mode: FailureMode = FailureMode.CLOSE
    app_protocol: str = "http"
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    api_version: str = "inference.networking.k8s.io/v1"
    picker_fault: str = ""

    @property
    def id(self) -> PoolId:
        """Name and uid: one life of this pool."""
        return PoolId(self.ref, self.uid)

    @property
    def reference(self) -> PoolReference:
        """How objectives and rewrites must name this pool to be of it."""
        return PoolReference(*self.ref, self.api_version.partition("/")[0])

    @property
    def also_serve(self) -> GroupKey | None:
        """The second route group, on the same port; None without a usable `ALSO_SERVE`."""
        service = self.annotations.get(ALSO_SERVE, "")
        if not _SERVICE_NAME.fullmatch(service):
            return None
        port = DEFAULT_PICKER_PORT if self.group is None else self.group.port
        also = GroupKey(self.ref.namespace, service, port)
        return None if also == self.group else also

    @property
    def groups(self) -> tuple[GroupKey, ...]:
        """Every route group that leads to this pool, that of its endpointPickerRef first."""
        return tuple(group for group in (self.group, self.also_serve) if group is not None)

    def selects(self, pod: "Pod") -> bool:
        """Whether `pod` belongs to this pool, ready or not."""
        if not self.selector or pod.namespace != self.ref.namespace:
            return False
        return all(pod.labels.get(key) == value for key, value in self.selector.items())


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod, trimmed.

    Attributes:
        ready: Ready condition True, no deletionTimestamp, phase neither Failed nor Succeeded, and
            an IP is known.
        ready_since: when its Ready condition last changed, as the pod says; "" = unknown. Tells
            apart two times of readiness between which nobody has looked.
        active_ports: the only ports at which it is an endpoint; None = all of its pool's.
        fault: what is wrong with it though it can be used, for people; "" for nothing.
    """

    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    ip: str
    ready: bool
    annotations: Mapping[str, str] = field(default_factory=dict)
    ready_since: str = ""
    active_ports: frozenset[int] | None = None
    fault: str = ""

    @property
    def engine(self) -> str:
        """The inference engine that its labels name; "" for none."""
        named = (self.labels.get(label, "") for label in ENGINE_LABELS)
        return next((name for name in named if name), "")


@dataclass(frozen=True, slots=True)
class Service:
    """A Service, trimmed to what ownership and routes ask.

    Attributes:
        ports: port number -> port name ("" for an unnamed port).
        owners: uids of its owner references.
    """

    namespace: str
    name: str
    uid: str
    selector: Mapping[str, str]
    type: str
    ports: Mapping[int, str]
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owners: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pod at one target port: what a pick names.

    Attributes:
        address: `ip:port` as it goes on the wire, IPv6 as `[::1]:8000`.
        rank: index of the port in the pool's targetPorts.
        engine: the inference engine by the pod's label; "" = none is named.
        ready_since: of the pod.
        labels: of the pod.
    """

    pod: str
    pod_uid: str
    address: str
    rank: int
    engine: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    ready_since: str = ""


def join_host_port(ip: str, port: int) -> str:
    """`ip:port`, with an IPv6 address compressed and in brackets.

    Raises:
        ValueError: `ip` is no IP address.
    """
    return host_port(ipaddress.ip_address(ip).compressed, port)


def endpoints_of(pool: Pool, pods: Iterable[Pod]) -> tuple[Endpoint, ...]:
    """The ready endpoints of `pool` among `pods`, ordered by pod name and rank.

    A port that a pod has not active is no endpoint; the others keep their ranks.
    """
    chosen = sorted(
        (pod for pod in pods if pod.ready and pool.selects(pod)), key=lambda pod: pod.name
    )
    return tuple(
        Endpoint(
            pod.name,
            pod.uid,
            join_host_port(pod.ip, port),
            rank,
            engine=pod.engine,
            labels=pod.labels,
            ready_since=pod.ready_since,
        )
        for pod in chosen
        for rank, port in enumerate(pool.target_ports)
        if pod.active_ports is None or port in pod.active_ports
    )


def response_phase_fault(annotations: Mapping[str, str]) -> str:
    """Why the annotation is ignored; "" if it is not, or there is none."""
    phase = annotations.get(RESPONSE_PHASE, "").strip()
    if not phase or phase in RESPONSE_PHASES:
        return ""
    return (
        f"annotation {RESPONSE_PHASE}: {phase[:80]!r} is unknown; use one of "
        f"{', '.join(RESPONSE_PHASES)}; it is ignored"
    )


def group_pools(pools: Iterable[Pool]) -> dict[GroupKey, tuple[Pool, ...]]:
    """Pools by route group, each ordered by name; pools without a group are left out."""
    groups: dict[GroupKey, list[Pool]] = {}
    for pool in pools:
        for group in pool.groups:
            groups.setdefault(group, []).append(pool)
    return {key: tuple(sorted(members, key=lambda p: p.ref)) for key, members in groups.items()}

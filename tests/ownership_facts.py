"""Pools, Services and foreign slices as tests of ownership put them together."""

from collections.abc import Callable, Mapping

from coordinator.ownership import Decision, RefusalReason, ServiceKey, SliceWriter, decide
from fleet.kube.names import CONTROLLER_NAME, FLEET_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from fleet.model import GroupKey, Pool, PoolRef, Service
from fleet.model.pools import ALSO_SERVE
from fleet.settings.model import OwnershipSettings

FLEET = "blue"
OURS = "example.com/blue"
THEIRS = "example.com/green"
FOREIGN = SliceWriter("endpointslice-controller.k8s.io", "")
GREEN = SliceWriter(MANAGED_BY, "green")
ALL = OwnershipSettings(controller_name=OURS)


def key(service: str = "epp", namespace: str = "ns") -> ServiceKey:
    return ServiceKey(namespace, service)


def group(service: str = "epp", port: int = 9002, namespace: str = "ns") -> GroupKey:
    return GroupKey(namespace, service, port)


def pool(
    name: str = "a",
    *,
    namespace: str = "ns",
    service: str | None = "epp",
    port: int = 9002,
    controller: str | None = None,
    also: str | None = None,
    labels: Mapping[str, str] | None = None,
    uid: str = "",
    fault: str = "",
) -> Pool:
    annotations = {CONTROLLER_NAME: controller, ALSO_SERVE: also}
    return Pool(
        PoolRef(namespace, name),
        uid or f"uid-{name}",
        {"app": name},
        (8000,),
        None if service is None else group(service, port, namespace),
        annotations={k: v for k, v in annotations.items() if v is not None},
        labels=labels or {},
        picker_fault=fault,
    )


def service(
    name: str = "epp",
    *,
    fleet: str | None = FLEET,
    created: bool = False,
    selector: Mapping[str, str] | None = None,
    kind: str = "ClusterIP",
    ports: tuple[int, ...] = (9002,),
    controller: str | None = None,
    owners: tuple[str, ...] = (),
    namespace: str = "ns",
) -> Service:
    labels = {FLEET_LABEL: fleet, MANAGED_BY_LABEL: MANAGED_BY if created else None}
    return Service(
        namespace,
        name,
        f"uid-{name}",
        selector or {},
        kind,
        {port: f"grpc-{port}" for port in ports},
        labels={k: v for k, v in labels.items() if v is not None},
        annotations={} if controller is None else {CONTROLLER_NAME: controller},
        owners=owners,
    )


class Slices:
    """Foreign slices that a test changes; implements `coordinator.claims.ForeignSlices`."""

    def __init__(self, *, listed: bool = True) -> None:
        self.listed = listed
        self._writers: dict[ServiceKey, frozenset[SliceWriter]] = {}
        self._listeners: list[Callable[[ServiceKey], None]] = []

    @property
    def writers(self) -> Mapping[ServiceKey, frozenset[SliceWriter]]:
        return self._writers

    def set(self, where: ServiceKey, *writers: SliceWriter) -> None:
        self._writers[where] = frozenset(writers)
        for listener in self._listeners:
            listener(where)

    def on_change(self, listener: Callable[[ServiceKey], None]) -> None:
        self._listeners.append(listener)

    def synced(self) -> bool:
        return self.listed

    async def wait_synced(self) -> None:
        assert self.listed


def decided(
    *pools: Pool,
    services: tuple[Service, ...] | None = (),
    foreign: dict[str, SliceWriter] | None = None,
    settings: OwnershipSettings = ALL,
    fleet: str = FLEET,
) -> Decision:
    """The decision about the first pool."""
    known = (
        None if services is None else {key(each.name, each.namespace): each for each in services}
    )
    writers = {key(name): frozenset([writer]) for name, writer in (foreign or {}).items()}
    return decide(pools, known, writers, settings, fleet)[pools[0].ref]


def states(decision: Decision) -> dict[str, str]:
    """Service -> state of what is served."""
    return {each.group.service: each.state.value for each in decision.served}


def reasons(decision: Decision) -> list[RefusalReason]:
    """Why something about the pool is refused."""
    return [refusal.reason for refusal in decision.refusals]

"""The decision about each pool: claimed, refused with a reason, or not ours. Pure.

What must never happen is that our addresses get into a Service whose owner did not ask for it, so
everything that is not plainly ours or offered to us is refused. What is offered to us is never
edited; what we created, only to add what another pool needs of it.

Two fleets side by side differ in `controller_name` and in name. A pool is handed over by changing
its annotation: the new fleet takes over the Service that the old one created for it, at once, and
the old one withdraws its addresses; for that moment both serve it.
"""

from collections.abc import Iterable, Mapping

from coordinator.ownership.claim import MANIFESTS, Claim
from coordinator.ownership.facts import (
    Claimed,
    Decision,
    NotOurs,
    Refusal,
    RefusalReason,
    Refused,
    Role,
    ServedBy,
    ServiceKey,
    ServiceState,
    SliceWriter,
    World,
)
from fleet.kube.names import CONTROLLER_NAME, FLEET_LABEL, MANAGED_BY, MANAGED_BY_LABEL
from fleet.model import GroupKey, Pool, PoolRef, Service
from fleet.model.pins import agreed, pin_of
from fleet.model.pools import ALSO_SERVE, response_phase_fault
from fleet.settings.model import OwnershipSettings

_SHOWN_PORTS = 12


class Ownership:
    """The rules of one fleet."""

    def __init__(self, settings: OwnershipSettings, fleet: str) -> None:
        self.claim = Claim(settings)
        self._controller = settings.controller_name
        self.fleet = fleet

    def decide(self, pool: Pool, world: World) -> Decision:
        """What this fleet does about `pool`."""
        if world.service is None:
            why = MANIFESTS
        else:
            verdict = self.claim.of(pool)
            if not verdict.ours:
                return NotOurs(verdict.why)
            why = verdict.why
        served: list[ServedBy] = []
        refusals = [*_faults(pool), *self._pin_faults(pool, world)]
        for group in pool.groups:
            role = Role.PICKER if group == pool.group else Role.ALSO_SERVE
            found = self._service(pool, group, role, world)
            if isinstance(found, Refusal):
                refusals.append(found)
            else:
                served.append(found)
        if served:
            return Claimed(why, tuple(served), tuple(refusals))
        return Refused(why, tuple(refusals))

    def _pin_faults(self, pool: Pool, world: World) -> Iterable[Refusal]:
        """Why its pin, or that of its groups, is ignored; the pool is served without."""
        pinned = pin_of(pool.annotations)
        if pinned.problem:
            yield Refusal(RefusalReason.PIN, pinned.problem)
        for group in pool.groups:
            pools = world.naming(ServiceKey(group.namespace, group.service))
            ours = [
                each
                for each in pools
                if group in each.groups and (world.service is None or self.claim.of(each).ours)
            ]
            if len(ours) > 1:
                together = agreed([pin_of(each.annotations).pin for each in ours])
                if together.problem:
                    yield Refusal(RefusalReason.PIN, together.problem, group)

    def is_another_fleets(self, service: Service) -> bool:
        """Whether the decision about one pool of `service` rests on all others that name it."""
        return service.labels.get(FLEET_LABEL, self.fleet) != self.fleet

    def _service(self, pool: Pool, group: GroupKey, role: Role, world: World) -> ServedBy | Refusal:
        if world.service is None:
            return ServedBy(group, role, ServiceState.UNCHECKED)
        key = ServiceKey(group.namespace, group.service)
        service = world.service(key)
        fault = None if service is None else _unfit(service)
        writers = world.foreign.get(key, frozenset())
        fault = fault or _foreign(key, writers)
        if fault is not None:
            return Refusal(fault[0], fault[1], group)
        note = _note(writers)
        if service is None:
            return ServedBy(group, role, ServiceState.MISSING, note)
        state = self._standing(pool, service, world)
        if isinstance(state, Refusal):
            return Refusal(state.reason, state.message, group)
        if state is ServiceState.LABELLED and group.port not in service.ports:
            return Refusal(RefusalReason.NO_PORT, _lacks_port(service, group.port), group)
        return ServedBy(group, role, state, note)

    def _standing(self, pool: Pool, service: Service, world: World) -> ServiceState | Refusal:
        fleet = service.labels.get(FLEET_LABEL)
        created = service.labels.get(MANAGED_BY_LABEL) == MANAGED_BY
        name = f"Service {service.namespace}/{service.name}"
        if fleet == self.fleet:
            return ServiceState.OURS if created else ServiceState.LABELLED
        if fleet is None:
            return Refusal(
                RefusalReason.NOT_LABELLED,
                f"{name} was not created by this fleet; to have it served, label it "
                f"{FLEET_LABEL}={self.fleet}, or name a Service that does not exist",
            )
        if created and self._may_take_over(pool, service, world):
            return ServiceState.HANDED_OVER
        if created:
            remedy = f"annotate every pool that names it {CONTROLLER_NAME}={self._controller}"
        else:
            remedy = f"label it {FLEET_LABEL}={self.fleet}"
        return Refusal(
            RefusalReason.OTHER_FLEET,
            f"{name} belongs to the fleet {fleet[:63]!r} by its label {FLEET_LABEL}; to have it "
            f"served by this one, {remedy}; or name another Service",
        )

    def _may_take_over(self, pool: Pool, service: Service, world: World) -> bool:
        """Whether another fleet's Service was made for pools that have all come to us.

        Only by their own annotations: two fleets that both claim all would take it in turns. And
        only from another controller's name: two fleets of one name would do the same.
        """
        before = service.annotations.get(CONTROLLER_NAME)
        if before is None or before == self._controller:
            return False
        pools = [pool, *world.naming(ServiceKey(service.namespace, service.name))]
        made_for_them = any(each.uid in service.owners for each in pools)
        return made_for_them and all(self.claim.names_us(each) for each in pools)


def decide(
    pools: Iterable[Pool],
    services: Mapping[ServiceKey, Service] | None,
    foreign: Mapping[ServiceKey, frozenset[SliceWriter]],
    settings: OwnershipSettings,
    fleet: str,
) -> dict[PoolRef, Decision]:
    """The decision about every pool.

    Args:
        services: all there are; None = nobody looks at them.
        foreign: see `World`.
    """
    known = tuple(pools)
    naming: dict[ServiceKey, list[Pool]] = {}
    for pool in known:
        for group in pool.groups:
            naming.setdefault(ServiceKey(group.namespace, group.service), []).append(pool)
    find = None if services is None else services.get
    world = World(find, foreign, lambda key: naming.get(key, ()))
    rules = Ownership(settings, fleet)
    return {pool.ref: rules.decide(pool, world) for pool in known}


def _faults(pool: Pool) -> Iterable[Refusal]:
    """What is wrong with the pool itself."""
    if pool.picker_fault:
        yield Refusal(RefusalReason.PICKER_KIND, pool.picker_fault)
    elif pool.group is None:
        yield Refusal(
            RefusalReason.NO_PICKER,
            "spec.endpointPickerRef is missing; name a Service (it is created if it does not "
            "exist), or take the pool from this fleet by another "
            f"{CONTROLLER_NAME} annotation",
        )
    wanted = pool.annotations.get(ALSO_SERVE)
    if wanted is not None and pool.also_serve is None and not _is_picker(pool, wanted):
        yield Refusal(
            RefusalReason.ALSO_SERVE,
            f"annotation {ALSO_SERVE}: {wanted[:80]!r} is no Service's name; use at most 63 of "
            "a-z, 0-9 and '-'",
        )
    fault = response_phase_fault(pool.annotations)
    if fault:
        yield Refusal(RefusalReason.RESPONSE_PHASE, fault)


def _is_picker(pool: Pool, service: str) -> bool:
    return pool.group is not None and pool.group.service == service


def _unfit(service: Service) -> tuple[RefusalReason, str] | None:
    name = f"Service {service.namespace}/{service.name}"
    if service.type == "ExternalName":
        return RefusalReason.EXTERNAL_NAME, f"{name} is of type ExternalName; use a ClusterIP"
    if service.selector:
        return (
            RefusalReason.SELECTOR,
            f"{name} has a selector, so it is somebody else's endpoint picker and is left alone; "
            f"to move the pool over, annotate it {ALSO_SERVE}: <new service>, then name that in "
            "endpointPickerRef",
        )
    return None


def _foreign(key: ServiceKey, writers: frozenset[SliceWriter]) -> tuple[RefusalReason, str] | None:
    others = sorted({writer.manager for writer in writers if writer.manager != MANAGED_BY})
    if not others:
        return None
    names = ", ".join(other[:80] or "an unknown manager" for other in others[:3])
    return (
        RefusalReason.FOREIGN_SLICES,
        f"Service {key} has EndpointSlices of {names}, so gateways also go to other addresses than "
        "ours; delete those EndpointSlices, or name another Service",
    )


def _note(writers: frozenset[SliceWriter]) -> str:
    fleets = sorted({writer.fleet or "no name" for writer in writers})
    if not fleets:
        return ""
    return f"EndpointSlices of another fleet ({', '.join(fleets[:3])}) are still in it"


def _lacks_port(service: Service, port: int) -> str:
    there = sorted(service.ports)
    shown = ", ".join(str(number) for number in there[:_SHOWN_PORTS]) or "none"
    more = f" and {len(there) - _SHOWN_PORTS} more" if len(there) > _SHOWN_PORTS else ""
    return (
        f"Service {service.namespace}/{service.name} has no port {port}; it has {shown}{more}; "
        "endpointPickerRef.port.number must be one of them"
    )

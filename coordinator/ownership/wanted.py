"""What a Service that we create should be, and what one that we created lacks. Pure.

A created Service has every port that a claimed pool asks for, and every such pool as an owner, so
that it goes when the last of them goes. Nothing is ever taken out of it: gateways may still use it.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.ownership.facts import Decision, ServiceKey, ServiceState
from fleet.kube.contract import Raw
from fleet.kube.names import (
    APP_PROTOCOL,
    CONTROLLER_NAME,
    FLEET_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    port_name,
)
from fleet.model import Pool, Service

_MAKEABLE = (ServiceState.MISSING, ServiceState.OURS, ServiceState.HANDED_OVER)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A Service of ours as claimed pools need it.

    Attributes:
        ports: numbers, ascending.
        owners: the pools, by name; at least one.
        exists: whether it is there, as far as is known.
        taken_over: whether another fleet may be its creator.
    """

    key: ServiceKey
    ports: tuple[int, ...]
    owners: tuple[Pool, ...]
    exists: bool
    taken_over: bool = False


def wanted(key: ServiceKey, naming: Iterable[tuple[Pool, Decision]]) -> Wanted | None:
    """What the pools that name `key` need; None if it is not ours to create or to change."""
    ports: set[int] = set()
    owners: list[Pool] = []
    states: set[ServiceState] = set()
    for pool, decision in naming:
        for served in decision.served:
            if served.service == key and served.state in _MAKEABLE:
                ports.add(served.group.port)
                owners.append(pool)
                states.add(served.state)
    if not owners:
        return None
    owners.sort(key=lambda pool: pool.ref)
    return Wanted(
        key,
        tuple(sorted(ports)),
        tuple(owners),
        exists=ServiceState.MISSING not in states,
        taken_over=ServiceState.HANDED_OVER in states,
    )


def satisfied(want: Wanted, service: Service | None, *, fleet: str) -> bool:
    """Whether `service`, as the source shows it, is all that is wanted."""
    return (
        service is not None
        and service.labels.get(FLEET_LABEL) == fleet
        and all(port in service.ports for port in want.ports)
        and all(pool.uid in service.owners for pool in want.owners)
    )


def manifest(want: Wanted, *, fleet: str, controller_name: str) -> Raw:
    """The Service to create: selector-less, of type ClusterIP."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "namespace": want.key.namespace,
            "name": want.key.name,
            "labels": {MANAGED_BY_LABEL: MANAGED_BY, FLEET_LABEL: fleet},
            "annotations": {CONTROLLER_NAME: controller_name},
            "ownerReferences": [_owner(pool) for pool in want.owners],
        },
        "spec": {"type": "ClusterIP", "ports": [_port(number) for number in want.ports]},
    }


def amended(raw: Raw, want: Wanted, *, fleet: str, controller_name: str) -> Raw | None:
    """`raw`, as the API server has it, with what it lacks; None if it lacks nothing.

    Raises:
        ValueError: it is not ours to change: this fleet did not create it, or it has a selector.
    """
    spec, metadata = raw.get("spec") or {}, raw.get("metadata") or {}
    labels = metadata.get("labels") or {}
    creator = labels.get(FLEET_LABEL) if labels.get(MANAGED_BY_LABEL) == MANAGED_BY else None
    if creator is None or (creator != fleet and not want.taken_over):
        raise ValueError(f"Service {want.key} exists and was not created by this fleet")
    if spec.get("selector"):
        raise ValueError(f"Service {want.key} has got a selector")
    changed = copy.deepcopy(raw)
    spec, metadata = changed["spec"], changed["metadata"]
    metadata["labels"] = {**labels, FLEET_LABEL: fleet}
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        CONTROLLER_NAME: controller_name,
    }
    owners = metadata.get("ownerReferences") or []
    known = {owner.get("uid") for owner in owners}
    metadata["ownerReferences"] = [
        *owners,
        *(_owner(pool) for pool in want.owners if pool.uid not in known),
    ]
    ports = spec.get("ports") or []
    numbers = {port.get("port") for port in ports}
    spec["ports"] = [*ports, *(_port(number) for number in want.ports if number not in numbers)]
    return None if changed == raw else changed


def _owner(pool: Pool) -> Raw:
    return {
        "apiVersion": pool.api_version,
        "kind": "InferencePool",
        "name": pool.ref.name,
        "uid": pool.uid,
    }


def _port(number: int) -> Raw:
    return {
        "name": port_name(number),
        "port": number,
        "protocol": "TCP",
        "appProtocol": APP_PROTOCOL,
    }

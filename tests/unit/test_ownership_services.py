"""Which Services of pools are served, made, or left alone."""

import pytest

from coordinator.ownership import (
    Claimed,
    RefusalReason,
    Refused,
    Role,
    ServedBy,
    ServiceState,
    SliceWriter,
)
from fleet.model import Service
from tests.ownership_facts import FOREIGN, GREEN, decided, group, pool, service, states


@pytest.mark.parametrize(
    ("there", "state"),
    [
        (None, ServiceState.MISSING),
        (service(created=True), ServiceState.OURS),
        (service(created=True, ports=(9009,)), ServiceState.OURS),
        (service(), ServiceState.LABELLED),
        (service(ports=(80, 9002)), ServiceState.LABELLED),
        (service(kind="NodePort"), ServiceState.LABELLED),
    ],
)
def test_services_that_are_served(there: Service | None, state: ServiceState) -> None:
    """A missing one is to be created, one that we created may lack a port for a moment."""
    decision = decided(pool(), services=() if there is None else (there,))
    assert decision == Claimed(
        "the fleet claims all pools", (ServedBy(group(), Role.PICKER, state),)
    )


@pytest.mark.parametrize(
    ("there", "foreign", "reason", "words"),
    [
        (
            service(kind="ExternalName"),
            None,
            RefusalReason.EXTERNAL_NAME,
            "Service ns/epp is of type ExternalName",
        ),
        (
            service(kind="ExternalName", fleet=None, selector={"app": "x"}),
            None,
            RefusalReason.EXTERNAL_NAME,
            "use a ClusterIP",
        ),
        (
            service(selector={"app": "epp"}),
            None,
            RefusalReason.SELECTOR,
            "has a selector, so it is somebody else's endpoint picker and is left alone",
        ),
        (
            service(created=True, selector={"app": "epp"}),
            None,
            RefusalReason.SELECTOR,
            "annotate it epp-fleet.dev/also-serve: <new service>",
        ),
        (
            service(fleet=None, selector={"app": "epp"}),
            FOREIGN,
            RefusalReason.SELECTOR,
            "has a selector",
        ),
        (
            service(),
            FOREIGN,
            RefusalReason.FOREIGN_SLICES,
            "Service ns/epp has EndpointSlices of endpointslice-controller.k8s.io",
        ),
        (
            service(created=True),
            FOREIGN,
            RefusalReason.FOREIGN_SLICES,
            "delete those EndpointSlices, or name another Service",
        ),
        (None, FOREIGN, RefusalReason.FOREIGN_SLICES, "so gateways also go to other addresses"),
        (service(), SliceWriter("", ""), RefusalReason.FOREIGN_SLICES, "of an unknown manager"),
        (
            service(fleet=None),
            None,
            RefusalReason.NOT_LABELLED,
            "label it epp-fleet.dev/fleet=blue, or name a Service that does not exist",
        ),
        (
            service(fleet=None, created=True),
            None,
            RefusalReason.NOT_LABELLED,
            "was not created by this fleet",
        ),
        (
            service(fleet="green"),
            None,
            RefusalReason.OTHER_FLEET,
            "belongs to the fleet 'green' by its label epp-fleet.dev/fleet; to have it served by "
            "this one, label it epp-fleet.dev/fleet=blue",
        ),
        (
            service(fleet="green", created=True),
            None,
            RefusalReason.OTHER_FLEET,
            "annotate every pool that names it epp-fleet.dev/controller-name=example.com/blue",
        ),
        (
            service(ports=(9003, 80, 443)),
            None,
            RefusalReason.NO_PORT,
            "Service ns/epp has no port 9002; it has 80, 443, 9003; ",
        ),
        (service(ports=()), None, RefusalReason.NO_PORT, "it has none; "),
        (
            service(ports=tuple(range(1, 20))),
            None,
            RefusalReason.NO_PORT,
            "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 7 more",
        ),
    ],
)
def test_services_that_are_left_alone(
    there: Service | None, foreign: SliceWriter | None, reason: RefusalReason, words: str
) -> None:
    """Each with a reason of its own and what to do, and nothing is served through it."""
    decision = decided(
        pool(),
        services=() if there is None else (there,),
        foreign=None if foreign is None else {"epp": foreign},
    )
    assert isinstance(decision, Refused)
    (refusal,) = decision.refusals
    assert (refusal.reason, refusal.group) == (reason, group())
    assert words in refusal.message


def test_slices_of_another_fleet_are_noted_not_refused() -> None:
    """They are what a hand-over leaves behind for a moment; the label says whose Service it is."""
    decision = decided(pool(), services=(service(created=True),), foreign={"epp": GREEN})
    (served,) = decision.served
    assert served.note == "EndpointSlices of another fleet (green) are still in it"


def test_the_service_of_another_namespace_is_not_the_pools() -> None:
    """A pool's Service is in its own namespace."""
    other = service(namespace="ns2", selector={"app": "x"})
    assert states(decided(pool(), services=(other,))) == {"epp": "missing"}

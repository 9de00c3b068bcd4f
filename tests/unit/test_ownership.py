"""Which pools are ours, through which Services, and what the others are told: rule by rule."""

import itertools
from dataclasses import dataclass

import pytest

from coordinator.ownership import (
    Claimed,
    NotOurs,
    RefusalReason,
    Refused,
    Role,
    ServedBy,
    ServiceState,
    decide,
)
from fleet.model import Pool, Service
from fleet.settings.model import OwnershipSettings
from tests.ownership_facts import (
    ALL,
    FLEET,
    FOREIGN,
    GREEN,
    OURS,
    THEIRS,
    decided,
    group,
    key,
    pool,
    reasons,
    service,
    states,
)

# -- whose pool it is ------------------------------------------------------------------------------

BY_NAMESPACE = OwnershipSettings(controller_name=OURS, claim="namespaces", namespaces="ns, ns2")

BY_LABEL = OwnershipSettings(controller_name=OURS, claim="selector", selector="team in (a,b),!old")

BY_LIST = OwnershipSettings(controller_name=OURS, claim="list", pools="ns/a, ns2/b")


@pytest.mark.parametrize(
    ("settings", "asked", "ours"),
    [
        (ALL, pool(), True),
        (ALL, pool(controller=OURS), True),
        (ALL, pool(controller=THEIRS), False),
        (ALL, pool(controller=""), False),
        (BY_NAMESPACE, pool(), True),
        (BY_NAMESPACE, pool(namespace="ns2"), True),
        (BY_NAMESPACE, pool(namespace="ns3"), False),
        (BY_NAMESPACE, pool(namespace="ns3", controller=OURS), True),
        (BY_NAMESPACE, pool(controller=THEIRS), False),
        (BY_LABEL, pool(labels={"team": "a"}), True),
        (BY_LABEL, pool(labels={"team": "a", "old": "yes"}), False),
        (BY_LABEL, pool(), False),
        (BY_LABEL, pool(controller=OURS), True),
        (BY_LABEL, pool(labels={"team": "a"}, controller=THEIRS), False),
        (BY_LIST, pool("a"), True),
        (BY_LIST, pool("b"), False),
        (BY_LIST, pool("b", namespace="ns2"), True),
        (BY_LIST, pool("b", controller=OURS), True),
    ],
)
def test_the_annotation_decides_else_the_claim(
    settings: OwnershipSettings, asked: Pool, ours: bool
) -> None:
    """An annotation outranks every claim, both ways; an empty one names nobody."""
    assert isinstance(decided(asked, settings=settings), Claimed if ours else NotOurs)


def test_why_is_said() -> None:
    """For people: the rule, with the words of the settings."""
    assert decided(pool()).why == "the fleet claims all pools"
    assert decided(pool(controller=THEIRS)).why == (
        f"its annotation epp-fleet.dev/controller-name is {THEIRS}"
    )
    assert decided(pool(namespace="x"), settings=BY_NAMESPACE).why == (
        "the fleet claims the pools of namespaces ns, ns2, not this pool"
    )
    assert decided(pool(), settings=BY_LABEL).why == (
        "the fleet claims the pools with labels team in (a,b),!old, not this pool"
    )


def test_a_pool_of_another_controller_is_not_looked_at() -> None:
    """Whatever is wrong with it is somebody else's to say."""
    decision = decided(pool(service=None, controller=THEIRS, also="NOT A NAME"))
    assert decision.refusals == ()
    assert decision.served == ()


# -- the pool itself -------------------------------------------------------------------------------


def test_a_pool_without_endpoint_picker() -> None:
    """endpointPickerRef is optional in v1."""
    decision = decided(pool(service=None))
    assert isinstance(decision, Refused)
    assert reasons(decision) == [RefusalReason.NO_PICKER]


def test_a_picker_that_is_no_service() -> None:
    """The parser's words are the message."""
    fault = "spec.endpointPickerRef.kind: 'Deployment' cannot be served; refer to a core Service"
    decision = decided(pool(service=None, fault=fault))
    assert isinstance(decision, Refused)
    assert [(each.reason, each.message) for each in decision.refusals] == [
        (RefusalReason.PICKER_KIND, fault)
    ]


# -- also-serve ------------------------------------------------------------------------------------


def test_also_serve_is_a_second_group_on_the_same_port() -> None:
    """The Service is created and served beside that of the endpointPickerRef."""
    decision = decided(pool(also="new", port=9005), services=(service(ports=(9005,)),))
    assert decision.served == (
        ServedBy(group("epp", 9005), Role.PICKER, ServiceState.LABELLED),
        ServedBy(group("new", 9005), Role.ALSO_SERVE, ServiceState.MISSING),
    )


def test_a_migration_in_four_steps() -> None:
    """From a picker of one's own to the fleet: annotate, switch the reference, drop the annotation;
    at no step is the old Service touched, nor is the pool without a Service that serves."""
    old = service("old", fleet=None, selector={"app": "old-epp"})
    new = service("new", created=True)
    steps = [
        (pool(service="old"), {}, [RefusalReason.SELECTOR]),
        (pool(service="old", also="new"), {"new": "ours"}, [RefusalReason.SELECTOR]),
        (pool(service="new", also="old"), {"new": "ours"}, [RefusalReason.SELECTOR]),
        (pool(service="new"), {"new": "ours"}, []),
    ]
    for step, served, refused in steps:
        decision = decided(step, services=(old, new))
        assert (states(decision), reasons(decision)) == (served, refused)


def test_also_serve_without_endpoint_picker_uses_the_default_port() -> None:
    """So the Service is there before the reference is."""
    decision = decided(pool(service=None, also="new"))
    assert decision.served == (ServedBy(group("new"), Role.ALSO_SERVE, ServiceState.MISSING),)
    assert reasons(decision) == [RefusalReason.NO_PICKER]


@pytest.mark.parametrize("name", ["", "A", "a.b", "-a", "a" * 64, "a b"])
def test_also_serve_that_is_no_service_name(name: str) -> None:
    """Refused with its value, the rest is served."""
    decision = decided(pool(also=name))
    assert states(decision) == {"epp": "missing"}
    assert reasons(decision) == [RefusalReason.ALSO_SERVE]


def test_also_serve_of_the_pickers_own_service_is_nothing_more() -> None:
    """Left over after the switch; harmless."""
    decision = decided(pool(also="epp"))
    assert (len(decision.served), decision.refusals) == (1, ())


# -- several pools, several fleets -----------------------------------------------------------------


def test_pools_of_one_service_are_decided_each_by_its_port() -> None:
    """A port per pool: the Service's owner offered two of them."""
    pools = (pool("a"), pool("b", port=9003), pool("c", port=9004))
    offered = {key(): service(ports=(9002, 9003))}
    decisions = decide(pools, offered, {}, ALL, FLEET)
    assert [reasons(decisions[each.ref]) for each in pools] == [[], [], [RefusalReason.NO_PORT]]


def test_two_fleets_side_by_side_never_want_the_same_pool() -> None:
    """By annotation: each pool is exactly one fleet's, or nobody's."""
    blue = OwnershipSettings(controller_name=OURS, claim="list", pools="ns/none")
    green = OwnershipSettings(controller_name=THEIRS, claim="list", pools="ns/none")
    for controller in (OURS, THEIRS, "example.com/red", None):
        asked = pool(controller=controller)
        ours = isinstance(decided(asked, settings=blue), Claimed)
        theirs = isinstance(decided(asked, settings=green, fleet="green"), Claimed)
        assert (ours, theirs) == (controller == OURS, controller == THEIRS)


MADE_BY_GREEN = service(fleet="green", created=True, controller=THEIRS, owners=("uid-a",))


def test_a_pool_is_handed_over_by_its_annotation() -> None:
    """The Service that green created for it is taken over; its slices go when green lets go."""
    decision = decided(pool(controller=OURS), services=(MADE_BY_GREEN,), foreign={"epp": GREEN})
    assert states(decision) == {"epp": "handed_over"}
    assert decision.refusals == ()


@dataclass(frozen=True)
class Doubt:
    """One thing that is not as in a hand-over."""

    name: str
    there: Service = MADE_BY_GREEN
    asked: tuple[Pool, ...] = (pool(controller=OURS),)


@pytest.mark.parametrize(
    "doubt",
    [
        Doubt("claimed by the setting, not by name", asked=(pool(),)),
        Doubt(
            "made for another pool", there=service(fleet="green", created=True, controller=THEIRS)
        ),
        Doubt(
            "labelled by a person, not created",
            there=service(fleet="green", controller=THEIRS, owners=("uid-a",)),
        ),
        Doubt(
            "a fleet with our controller's name",
            there=service(fleet="green", created=True, controller=OURS, owners=("uid-a",)),
        ),
        Doubt(
            "nobody knows who created it",
            there=service(fleet="green", created=True, owners=("uid-a",)),
        ),
        Doubt(
            "another pool of it stays with green",
            asked=(pool(controller=OURS), pool("b", port=9003, controller=THEIRS)),
        ),
        Doubt(
            "another pool of it is not named",
            asked=(pool(controller=OURS), pool("b", also="epp", service="x")),
        ),
    ],
    ids=lambda doubt: doubt.name,
)
def test_a_service_of_another_fleet_is_not_taken_in_doubt(doubt: Doubt) -> None:
    """Two fleets must never take one Service from each other in turns."""
    decision = decided(*doubt.asked, services=(doubt.there,))
    assert isinstance(decision, Refused)
    assert reasons(decision) == [RefusalReason.OTHER_FLEET]


def test_a_service_of_several_pools_is_taken_when_the_last_has_come() -> None:
    """Until then it stays with whoever serves the others."""
    pools = (pool(controller=OURS), pool("b", port=9003, controller=OURS))
    assert states(decided(*pools, services=(MADE_BY_GREEN,))) == {"epp": "handed_over"}


# -- a folder of manifests -------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [ALL, BY_NAMESPACE, BY_LABEL, BY_LIST])
def test_a_folders_pools_are_all_served_whatever_their_services(
    settings: OwnershipSettings,
) -> None:
    """Services are optional there, and nobody else could serve its pools."""
    asked = pool(namespace="elsewhere", controller=THEIRS, also="new")
    decision = decided(asked, services=None, settings=settings)
    assert isinstance(decision, Claimed)
    assert states(decision) == {"epp": "unchecked", "new": "unchecked"}


def test_a_folders_pool_without_picker_is_refused() -> None:
    """Nothing leads to it."""
    assert isinstance(decided(pool(service=None), services=None), Refused)


# -- all combinations ------------------------------------------------------------------------------


def test_no_combination_serves_a_service_that_nobody_gave_us() -> None:
    """Every Service that is served is ours, labelled for us, absent, or handed over."""
    services = [None] + [
        service(
            fleet=fleet,
            created=created,
            selector=selector,
            kind=kind,
            ports=ports,
            controller=controller,
            owners=owners,
        )
        for fleet in (None, FLEET, "green")
        for created in (False, True)
        for selector in ({}, {"app": "x"})
        for kind in ("ClusterIP", "ExternalName")
        for ports in ((9002,), (80,))
        for controller in (None, OURS, THEIRS)
        for owners in ((), ("uid-a",))
    ]
    pools = [pool(controller=c, also=a) for c in (None, OURS, THEIRS) for a in (None, "epp", "b")]
    for there, asked, foreign in itertools.product(services, pools, (None, FOREIGN, GREEN)):
        decision = decided(
            asked,
            services=() if there is None else (there,),
            foreign=None if foreign is None else {"epp": foreign},
        )
        if isinstance(decision, NotOurs):
            assert not decision.served
        elif not decision.served:
            assert decision.refusals
        for served in decision.served:
            if served.group.service != "epp" or there is None:
                assert served.state is ServiceState.MISSING
                continue
            assert foreign is not FOREIGN
            assert not there.selector
            assert there.type == "ClusterIP"
            if served.state is ServiceState.HANDED_OVER:
                assert asked.annotations["epp-fleet.dev/controller-name"] == OURS
                assert there.owners
            else:
                assert there.labels["epp-fleet.dev/fleet"] == FLEET

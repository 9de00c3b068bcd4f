"""What Prometheus reads of a source."""

import asyncio
import random
from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from fleet.errors import (
    KubeConflict,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeRefused,
    KubeThrottled,
    KubeUnavailable,
)
from fleet.kube.call_errors import CallErrors
from fleet.metrics import Collected
from fleet.settings.model import KubernetesSettings
from fleet.sources.contract import Kind
from fleet.sources.kubernetes import KubeSource
from fleet.sources.metrics import (
    ResourceFigures,
    SourceFigures,
    families,
    source_figures,
)
from tests.scripted_kube import LoopClock, ScriptedKube, page
from tests.worker_fakes import FakeSource

pytestmark = pytest.mark.looptime


def samples(figures: SourceFigures) -> Mapping[str, float]:
    return {
        "".join((each.name, *(f" {value}" for value in each.labels.values()))): each.value
        for family in families(figures)
        for each in family.samples
        if each.name != "epp_fleet_kube_errors_total"
    }


def failed_calls(figures: SourceFigures) -> Mapping[str, float]:
    """By kind."""
    return {
        each.labels["kind"]: each.value
        for family in families(figures)
        for each in family.samples
        if each.name == "epp_fleet_kube_errors_total"
    }


async def test_any_source_tells_its_age_and_problems() -> None:
    """A folder has no lists or watches."""
    assert samples(source_figures(FakeSource())) == {
        "epp_fleet_source_age_seconds": 0.0,
        "epp_fleet_source_problems": 0.0,
    }


async def test_all_watches_of_a_resource_are_one() -> None:
    """The oldest list counts, objects are added, and totals outlive the watches of namespaces."""
    kube = ScriptedKube([page()])
    settings = KubernetesSettings(watch_namespaces="ns1,ns2")
    source = KubeSource(kube, settings, LoopClock(), random.Random(1))
    source.watch(Kind.SERVICE, lambda change: None)
    pods = source.watch(Kind.POD, lambda change: None, namespace="ns1")
    await source.start()
    await pods.wait_synced()
    await asyncio.sleep(5)
    pods.close()
    figures = source_figures(source)
    assert figures.resources == {
        "services": ResourceFigures(synced=True, list_age_seconds=5.0, objects=0)
    }
    totals = {resource: numbers["lists"] for resource, numbers in figures.totals.items()}
    assert totals == {"services": 2, "pods": 1}
    assert samples(figures)["epp_fleet_source_operations_total pods lists"] == 1
    registry = CollectorRegistry()
    registry.register(Collected(lambda: families(source_figures(source))))
    text = generate_latest(registry).decode()
    assert 'epp_fleet_source_list_age_seconds{resource="services"} 5.0' in text
    await source.close()


def test_a_resource_is_synced_when_all_its_watches_are() -> None:
    """And as old as the oldest list."""
    figures = SourceFigures(
        3.0, 1, {"pods": ResourceFigures(False, 7.0, 2)}, {"pods": {"lists": 4}}
    )
    assert samples(figures) == {
        "epp_fleet_source_age_seconds": 3.0,
        "epp_fleet_source_problems": 1.0,
        "epp_fleet_source_synced pods": 0.0,
        "epp_fleet_source_list_age_seconds pods": 7.0,
        "epp_fleet_source_objects pods": 2.0,
        "epp_fleet_source_operations_total pods lists": 4.0,
    }


def test_failed_calls_of_an_api_server_are_counted_by_kind() -> None:
    """Conflicts and what is not there are no faults."""
    errors = CallErrors()
    for error in (
        KubeUnavailable("no answer"),
        KubeUnavailable("HTTP 500"),
        KubeForbidden("no", status=403),
        KubeThrottled("later", retry_after_seconds=1.0),
        KubeRefused("no", status=422),
        KubeConflict("changed", status=409),
        KubeNotFound("gone", status=404),
        KubeGone("old", status=410),
    ):
        errors.count(error)
    figures = SourceFigures(call_errors=errors.counts)
    assert failed_calls(figures) == {
        "unavailable": 2,
        "forbidden": 1,
        "throttled": 1,
        "refused": 1,
    }
    assert sum(failed_calls(source_figures(FakeSource())).values()) == 0

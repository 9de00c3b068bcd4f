"""Annotations that nobody obeys, on the console of a local fleet."""

from dataclasses import replace

from fleet.local.ignored import ignored
from fleet.model import Pool
from fleet.model.pins import PIN
from fleet.model.pools import RESPONSE_PHASE
from tests.ownership_facts import pool


def annotated(name: str, service: str = "epp", **annotations: str) -> Pool:
    keys = {"pin": PIN, "phase": RESPONSE_PHASE}
    plain = pool(name, service=service)
    return replace(plain, annotations={keys[key]: text for key, text in annotations.items()})


def test_what_is_ignored_and_why() -> None:
    """By the reasons of the Events of a cluster."""
    found = ignored(
        [
            annotated("a", "a-epp", pin="colour=red"),
            annotated("b", "b-epp", phase="later"),
            annotated("c", "c-epp", pin="zone=eu", phase="detach"),
        ]
    )
    pin, phase = "InferencePool ns/a: InvalidPin", "InferencePool ns/b: InvalidResponsePhase"
    assert list(found) == [pin, phase]
    assert "'colour' is unknown here" in found[pin]
    assert "'later' is unknown; use one of" in found[phase]


def test_pools_of_one_service_must_agree() -> None:
    """Both are told."""
    pools = [annotated("a", pin="zone=eu"), annotated("b", pin="zone=us")]
    found = ignored(pools)
    assert len(found) == 2
    assert all("give all of them the same" in text for text in found.values())

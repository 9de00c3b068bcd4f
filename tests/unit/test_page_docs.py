"""docs/page.md: what it states is what there is."""

import re

import msgspec

from coordinator import endpoints as questions
from coordinator.web import events, feed
from coordinator.web.changes import ChangesDocument, GoneDocument, WorkersChangeDocument
from coordinator.web.endpoints import EndpointDocument
from epp_worker.endpoints import BOUNDS
from fleet.control.endpoint_messages import MAX_ENDPOINTS
from tests.kustomize import ROOT

TEXT = " ".join((ROOT / "docs" / "page.md").read_text().split())


def fields(document: type[msgspec.Struct]) -> set[str]:
    return set(document.__struct_fields__) - {"format"}


def test_every_field_is_named() -> None:
    """Of the events and of an endpoint."""
    named = set(re.findall(r"`(\w+)`", TEXT))
    documents = (ChangesDocument, GoneDocument, WorkersChangeDocument, EndpointDocument)
    for document in (*documents, feed.StandingDocument, events.BeatDocument):
        assert fields(document) <= named, document


def test_the_figures_are_the_codes() -> None:
    """Bounds and times."""
    for sentence in (
        f"{events.MAX_LISTENERS} clients at most",
        f"does not read for {events.WRITE_SECONDS:g} s is cut off",
        f"after {events.STREAM_SECONDS:g} s a stream ends",
        f"nothing else was said for {events.BEAT_SECONDS:g} s",
        f"at most {MAX_ENDPOINTS:,}",
        f"a worker answers {BOUNDS.a_second:g} a second",
    ):
        assert sentence in TEXT
    assert (questions.ANSWER_SECONDS, questions.FRESH_SECONDS) == (1.0, 1.0)


def test_the_pictures_are_there() -> None:
    """And small enough to be loaded with a README."""
    for name in re.findall(r"\]\((pictures/[^)]+)\)", TEXT):
        size = (ROOT / "docs" / name).stat().st_size
        assert 10_000 < size < 300_000

"""Pages and events as servers send them, and as they should not."""

import json
from typing import Any

import pytest

from fleet.errors import KubeGone, KubeThrottled, KubeUnavailable, ManifestError
from fleet.kube.listwatch_events import (
    Collection,
    EventType,
    decode_object,
    read_event,
    read_page,
    trimmed,
)


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_paths() -> None:
    """Of the cluster, and of one namespace."""
    core, group = Collection("/api/v1", "pods"), Collection("/apis/g/v1", "things", "ns1")
    assert core.path == "/api/v1/pods"
    assert group.path == "/apis/g/v1/namespaces/ns1/things"


def test_a_page() -> None:
    """Objects stay JSON; version and token are read."""
    meta = {"resourceVersion": "7", "continue": "next", "remainingItemCount": 3}
    page = read_page(body(kind="PodList", metadata=meta, items=[{"a": 1}, {"b": [2]}]))
    assert [bytes(item) for item in page.items] == [b'{"a": 1}', b'{"b": [2]}']
    assert (page.version, page.token) == ("7", "next")


@pytest.mark.parametrize("items", [None, []])
def test_an_empty_page(items: list[object] | None) -> None:
    """Some servers write null for no items."""
    page = read_page(body(kind="XList", metadata={"resourceVersion": "7"}, items=items))
    assert page == ([], "7", "")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>502</html>",
        b"[]",
        b"7",
        b'{"items": [',
        b'{"items": [{"a": }], "metadata": {"resourceVersion": "1"}}',
        b'{"kind": "PodList", "items": []}',
        b'{"metadata": {"resourceVersion": "1"}}',
        b'{"metadata": {"resourceVersion": ""}, "items": []}',
        b'{"metadata": {"resourceVersion": 5}, "items": []}',
        b'{"metadata": {"resourceVersion": null}, "items": []}',
        b'{"metadata": {"resourceVersion": "1", "continue": 5}, "items": []}',
        b'{"metadata": {"resourceVersion": "1"}, "items": {}}',
        b'{"metadata": {"resourceVersion": "1"}, "items": "x"}',
        b"[" * 100_000,
        b'{"items": ' + b"[" * 100_000,
    ],
)
def test_what_is_no_list(text: bytes) -> None:
    """It is never taken for an empty one, which would remove everything."""
    with pytest.raises(KubeUnavailable, match="no list of objects"):
        read_page(text)


def test_a_status_inside_a_list() -> None:
    """kubernetes-client/python-base#231: HTTP says 200, the body 410."""
    with pytest.raises(KubeGone):
        read_page(body(kind="Status", code=410, reason="Expired"))


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_an_event(kind: str) -> None:
    """Type, object and the object's version."""
    raw = {"metadata": {"name": "p", "resourceVersion": "9"}}
    assert read_event({"type": kind, "object": raw}) == (EventType(kind), raw, "9")


@pytest.mark.parametrize("kind", ["ADDED", "BOOKMARK"])
@pytest.mark.parametrize(
    "raw", [{}, {"metadata": None}, {"metadata": {"resourceVersion": 9}}, {"metadata": []}]
)
def test_an_event_without_a_version(kind: str, raw: dict[str, Any]) -> None:
    """kubernetes-client/python-base#199: then there is none, and the last one stays."""
    assert read_event({"type": kind, "object": raw}).version == ""


def test_a_bookmark_without_an_object() -> None:
    """kubernetes-client/python-base#199."""
    assert read_event({"type": "BOOKMARK"}) == (EventType.BOOKMARK, {}, "")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        ({"code": 410, "metadata": {"resourceVersion": "5"}}, KubeGone),
        ({"code": 500, "reason": "Expired"}, KubeGone),
        ({"reason": "Gone"}, KubeGone),
        ({"code": 500}, KubeUnavailable),
        ({"code": "410"}, KubeUnavailable),
        ({}, KubeUnavailable),
        (None, KubeUnavailable),
        ("text", KubeUnavailable),
    ],
)
def test_error_events(status: object, error: type[Exception]) -> None:
    """tomplus/kubernetes_asyncio#325: an ERROR event is an error, whatever is in it."""
    with pytest.raises(error):
        read_event({"type": "ERROR", "object": status})


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ({"retryAfterSeconds": 7}, 7.0),
        ({"retryAfterSeconds": 10**9}, 60.0),
        ({"retryAfterSeconds": float("nan")}, 1.0),
        ({"retryAfterSeconds": -5}, 1.0),
        ({"retryAfterSeconds": "7"}, 1.0),
        ({}, 1.0),
        (None, 1.0),
    ],
)
def test_being_throttled_inside_a_watch(details: object, seconds: float) -> None:
    """What the server asks for, within reason."""
    with pytest.raises(KubeThrottled) as caught:
        read_event({"type": "ERROR", "object": {"code": 429, "details": details}})
    assert caught.value.retry_after_seconds == seconds


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"type": None},
        {"type": 5, "object": {}},
        {"type": "added", "object": {}},
        {"type": "RENAMED", "object": {}},
        {"type": "ADDED"},
        {"type": "ADDED", "object": []},
        {"kind": "Pod"},
    ],
)
def test_what_is_no_event(raw: dict[str, Any]) -> None:
    """tomplus/kubernetes_asyncio#352."""
    with pytest.raises(KubeUnavailable):
        read_event(raw)


def test_a_status_instead_of_an_event() -> None:
    """kubernetes-client/python-base#231."""
    with pytest.raises(KubeGone):
        read_event({"kind": "Status", "code": 410})


def test_json_that_is_no_object() -> None:
    """It becomes one without a name, which the cache knows how to take."""
    assert decode_object(b"[1, 2]") == {}
    assert decode_object(b'{"a": 1}') == {"a": 1}


def test_trimming() -> None:
    """What nobody reads goes; the given object stays as it was."""
    last = "kubectl.kubernetes.io/last-applied-configuration"
    raw: dict[str, Any] = {
        "metadata": {
            "name": "a",
            "managedFields": [{"manager": "kubectl"}],
            "annotations": {"x": "1", last: "{}"},
        },
        "spec": {"y": 2},
    }
    assert trimmed(raw) == {
        "metadata": {"name": "a", "annotations": {"x": "1"}},
        "spec": {"y": 2},
    }
    assert "managedFields" in raw["metadata"]
    assert last in raw["metadata"]["annotations"]


@pytest.mark.parametrize("raw", [{}, {"metadata": None}, {"metadata": {"annotations": 5}}])
def test_trimming_of_what_is_broken(raw: dict[str, Any]) -> None:
    """It is for others to complain."""
    assert trimmed(raw) == raw


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_labels_and_annotations_are_bounded(field: str) -> None:
    """512 KiB: twice what an API server allows of annotations."""
    metadata = {"namespace": "ns1", "name": "a", field: {"k": "x" * (512 * 1024 - 1)}}
    assert trimmed({"kind": "Pod", "metadata": metadata})["metadata"] == metadata
    metadata[field] = {"k": "x" * 512 * 1024}
    with pytest.raises(ManifestError, match="Pod ns1/a: metadata: 512 KiB of labels and annot"):
        trimmed({"kind": "Pod", "metadata": metadata})

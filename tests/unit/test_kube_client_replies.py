"""What an API server's answers mean, and which RBAC rule a request needs."""

from datetime import UTC, datetime

import pytest

from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeGone,
    KubeNotFound,
    KubeRefused,
    KubeThrottled,
    KubeUnavailable,
)
from fleet.kube.lines import Lines, LineTooLong
from fleet.kube.replies import MAX_MESSAGE, answer_of, event_of, refusal_of
from fleet.kube.targets import target

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PODS = target("GET", "/api/v1/namespaces/a/pods")


def refused(status: int, body: bytes = b"", **headers: str) -> KubeError:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refusal_of(PODS, status, named, body, NOW)


@pytest.mark.parametrize(
    ("method", "path", "words"),
    [
        ("GET", "/api/v1/pods", "list pods"),
        ("GET", "/api/v1/namespaces/a/pods", "list pods in namespace a"),
        ("GET", "/api/v1/namespaces/a/pods/p", "get pods p in namespace a"),
        ("PATCH", "/api/v1/namespaces/a/pods/p/status", "patch pods/status p in namespace a"),
        ("POST", "/api/v1/namespaces/a/events", "create events in namespace a"),
        ("DELETE", "/api/v1/namespaces/a/pods/p", "delete pods p in namespace a"),
        ("DELETE", "/api/v1/namespaces/a/pods", "deletecollection pods in namespace a"),
        ("GET", "/api/v1/namespaces", "list namespaces"),
        ("GET", "/api/v1/namespaces/a", "get namespaces a"),
        ("PUT", "/api/v1/namespaces/a/status", "update namespaces/status a"),
        ("GET", "/api/v1/nodes/n", "get nodes n"),
        (
            "PUT",
            "/apis/coordination.k8s.io/v1/namespaces/f/leases/l",
            "update leases.coordination.k8s.io l in namespace f",
        ),
        ("GET", "/apis/g.io/v1/things", "list things.g.io"),
        ("GET", "/apis/g.io/v1", "get /apis/g.io/v1"),
        ("GET", "/version", "get /version"),
    ],
)
def test_requests_in_the_words_of_rbac(method: str, path: str, words: str) -> None:
    """Verb, resource, subresource, name and namespace are those that the authorizer sees."""
    assert str(target(method, path)) == words


def test_the_rule_that_is_missing() -> None:
    """What an operator has to put into a Role, word by word."""
    watch = target("GET", "/apis/llm-d.ai/v1alpha2/inferenceobjectives", watching=True)
    assert watch.rule() == (
        'verb "watch" on resource "inferenceobjectives" of API group "llm-d.ai" '
        "in the whole cluster"
    )
    assert PODS.rule() == 'verb "list" on resource "pods" of API group "" in namespace "a"'
    assert target("GET", "/version").rule() == 'verb "get" on nonResourceURL "/version"'


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (302, KubeUnavailable),
        (400, KubeRefused),
        (401, KubeForbidden),
        (403, KubeForbidden),
        (404, KubeNotFound),
        (408, KubeUnavailable),
        (409, KubeConflict),
        (410, KubeGone),
        (422, KubeRefused),
        (429, KubeThrottled),
        (500, KubeUnavailable),
        (503, KubeUnavailable),
        (504, KubeUnavailable),
    ],
)
def test_each_status_has_its_error(status: int, kind: type[KubeError]) -> None:
    """The message names the request, the status and the server's own words."""
    error = refused(status, b'{"kind":"Status","message":"own\\n words","reason":"R"}')
    assert type(error) is kind
    assert str(error).startswith(f"list pods in namespace a: HTTP {status}: own words")
    if isinstance(error, KubeRefused):
        assert error.status == status
        assert error.reason == ("TooManyRequests" if status == 429 else "R")


def test_forbidden_by_rbac_and_by_others() -> None:
    """Only where the authorizer said no is a missing rule named; a quota is not mended by RBAC."""
    said = b'{"message":"pods is forbidden: User \\"u\\" cannot list resource \\"pods\\""}'
    assert f"RBAC lacks {PODS.rule()}" in str(refused(403, said))
    assert f"RBAC lacks {PODS.rule()}" in str(refused(403))
    assert "RBAC" not in str(refused(403, b'{"message":"exceeded quota: pods"}'))


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"[1]", b'{"message":3}', b"\xff\xfe{"])
def test_errors_without_a_status_object(body: bytes) -> None:
    """A proxy's page is repeated, bounded, and is no reason to fail."""
    assert isinstance(refused(404, body), KubeNotFound)


def test_long_messages_are_cut() -> None:
    """A page of megabytes does not get into a log line."""
    assert len(str(refused(500, b"x" * 100_000))) < MAX_MESSAGE + 100


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"Retry_After": "7"}, b"", 7.0),
        ({"Retry_After": "0"}, b"", 0.0),
        ({"Retry_After": "86400"}, b"", 300.0),
        ({"Retry_After": "9" * 500}, b"", 300.0),
        ({"Retry_After": "Thu, 01 Jan 2026 00:00:05 GMT"}, b"", 5.0),
        # The server's clock is an hour ahead of ours; its own Date says so.
        (
            {
                "Retry_After": "Thu, 01 Jan 2026 01:00:04 GMT",
                "Date": "Thu, 01 Jan 2026 01:00:00 GMT",
            },
            b"",
            4.0,
        ),
        ({"Retry_After": "Wed, 31 Dec 2025 23:59:59 GMT"}, b"", 0.0),
        ({"Retry_After": "Fri, 01 Jan 2027 00:00:00 GMT"}, b"", 300.0),
        ({"Retry_After": "soon"}, b"", 1.0),
        ({"Retry_After": "-3"}, b"", 1.0),
        ({"Retry_After": "\u0663"}, b"", 1.0),
        ({}, b'{"details":{"retryAfterSeconds":3}}', 3.0),
        ({}, b'{"details":{"retryAfterSeconds":true}}', 1.0),
        ({}, b'{"details":{"retryAfterSeconds":-1}}', 1.0),
        ({}, b'{"details":[]}', 1.0),
        ({}, b"", 1.0),
    ],
)
def test_retry_after(headers: dict[str, str], body: bytes, seconds: float) -> None:
    """Seconds or an HTTP date, else the Status object's, else 1 s; never negative nor over 300."""
    error = refused(429, body, **headers)
    assert isinstance(error, KubeThrottled)
    assert error.retry_after_seconds == seconds


@pytest.mark.parametrize("body", [b"", b"nope", b"[]", b'"x"', b"\xff", b"[" * 200_000])
def test_an_answer_that_is_no_object_proves_nothing(body: bytes) -> None:
    """Something else than an API server may have answered."""
    with pytest.raises(KubeUnavailable, match="list pods in namespace a: the answer is no JSON"):
        answer_of(body, PODS)


def test_a_failure_inside_a_good_status() -> None:
    """kubernetes-client/python-base#231: a 200 whose body says 410 means 410."""
    body = b'{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"old"}'
    with pytest.raises(KubeGone, match="HTTP 410: old"):
        answer_of(body, PODS)
    with pytest.raises(KubeGone, match="HTTP 410: old"):
        event_of(body, PODS)
    assert answer_of(b'{"kind":"Status","status":"Success"}', PODS)["status"] == "Success"


@pytest.mark.parametrize(
    "line",
    [
        b"nope",
        b"{}",
        b'{"type":1,"object":{}}',
        b'{"type":"ADDED"}',
        b'{"type":"ADDED","object":3}',
    ],
)
def test_lines_that_are_no_events(line: bytes) -> None:
    """They end the watch as an unreachable server would: list again."""
    with pytest.raises(KubeUnavailable):
        event_of(line, PODS)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_however_they_are_cut(size: int) -> None:
    """Chunk borders mean nothing; blank lines are left out."""
    data = b'{"a":1}\n\n{"b":2}\r\n{"c":'
    lines = Lines(100)
    found = [line for at in range(0, len(data), size) for line in lines.feed(data[at : at + size])]
    assert found == [b'{"a":1}', b'{"b":2}']
    assert lines.rest() == b'{"c":'
    assert lines.rest() == b""


def test_a_line_over_the_bound() -> None:
    """Neither a whole line nor one that never ends is held beyond the bound."""
    assert Lines(10).feed(b"0123456789\n") == [b"0123456789"]
    with pytest.raises(LineTooLong):
        Lines(10).feed(b"0123456789a\n")
    endless = Lines(10)
    endless.feed(b"01234")
    endless.feed(b"56789")
    with pytest.raises(LineTooLong):
        endless.feed(b"a")

"""The client's watches against a server that answers by script."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import KubeError, KubeForbidden, KubeGone, KubeThrottled, KubeUnavailable
from tests.kube_clients import client_of
from tests.scripted_http import Answer, answer, chunked, scripted, status

PATH = "/api/v1/namespaces/a/pods"


def event(name: str, kind: str = "ADDED") -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": name}}}


def line(name: str) -> bytes:
    return json.dumps(event(name)).encode() + b"\n"


async def watched(
    folder: Path, given: Answer, *, seconds: float = 5.0
) -> tuple[list[dict[str, Any]], KubeError | None]:
    """What a watch of this answer yields, and how it ends."""
    seen: list[dict[str, Any]] = []
    async with scripted(given) as server, client_of(folder, server.url) as client:
        try:
            async for each in client.watch(PATH, params={}, read_timeout_seconds=seconds):
                seen.append(each)
        except KubeError as error:
            return seen, error
    return seen, None


async def test_it_is_asked_for_as_a_watch(tmp_path: Path) -> None:
    """The caller's parameters, and watch=1."""
    async with scripted(chunked()) as server, client_of(tmp_path, server.url) as client:
        params = {"resourceVersion": "7", "timeoutSeconds": "300"}
        assert [x async for x in client.watch(PATH, params=params, read_timeout_seconds=1)] == []
    assert server.asked[0].target == f"{PATH}?resourceVersion=7&timeoutSeconds=300&watch=1"


@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_events_however_they_are_cut(tmp_path: Path, size: int) -> None:
    """Chunks of the transfer are no lines; a good end ends the iteration."""
    data = line("a") + b"\n" + line("b") + line("c")
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert await watched(tmp_path, chunked(*pieces)) == ([event("a"), event("b"), event("c")], None)


async def test_an_error_event_is_an_event(tmp_path: Path) -> None:
    """The caller sees 410 inside a watch as the server sent it (kubernetes-client/python#2223)."""
    error = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
    given = chunked(json.dumps(error).encode() + b"\n")
    assert await watched(tmp_path, given) == ([error], None)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (status(410, "too old", "Expired"), KubeGone),
        (status(403, 'User "u" cannot watch'), KubeForbidden),
        (status(429), KubeThrottled),
        (status(500), KubeUnavailable),
        (Answer([], "close"), KubeUnavailable),
        # A whole Status instead of events, not even chunked (kubernetes-client/python-base#231).
        (answer(200, {"kind": "Status", "status": "Failure", "code": 410}), KubeGone),
    ],
)
async def test_a_watch_that_is_refused(
    tmp_path: Path, given: Answer, kind: type[KubeError]
) -> None:
    """As for any call; the verb in the message is watch."""
    seen, error = await watched(tmp_path, given)
    assert (seen, type(error)) == ([], kind)
    assert str(error).startswith("watch pods in namespace a: ")


@pytest.mark.parametrize(
    ("rest", "then"),
    [
        (b"garbage\n", "end"),
        (b'{"no":"event"}\n', "end"),
        (b'{"type": "ADDED", "obj', "end"),
        (b'{"type": "ADDED", "obj', "close"),
        (b'{"type": "ADDED", "obj', "reset"),
        (line("b"), "reset"),
    ],
)
async def test_a_watch_that_breaks(tmp_path: Path, rest: bytes, then: str) -> None:
    """Events before the break arrive; then KubeUnavailable (tomplus/kubernetes_asyncio#235)."""
    seen, error = await watched(tmp_path, chunked(line("a"), rest, then=then))
    assert seen[0] == event("a")
    assert type(error) is KubeUnavailable


async def test_a_last_line_without_its_end(tmp_path: Path) -> None:
    """It counts if it is whole: half a JSON object is none."""
    body = (line("a") + line("b")).rstrip()
    assert await watched(tmp_path, answer(200, body)) == ([event("a"), event("b")], None)


async def test_a_half_open_watch(tmp_path: Path) -> None:
    """Silence longer than the deadline ends it: nobody may be there any more
    (opensandbox-group/OpenSandbox#1533)."""
    given = chunked(line("a"), then="silent")
    seen, error = await watched(tmp_path, given, seconds=0.02)
    assert seen == [event("a")]
    assert str(error) == "watch pods in namespace a: no answer within 0.02 s"


async def test_a_watch_that_never_begins(tmp_path: Path) -> None:
    """The head has to come within the limit of any call, however long the watch may be silent."""
    async with (
        scripted() as server,
        client_of(tmp_path, server.url, request_timeout_seconds=0.1) as client,
    ):
        with pytest.raises(KubeUnavailable, match=r"no answer within 0\.1 s"):
            await anext(client.watch(PATH, params={}, read_timeout_seconds=600))


async def test_an_oversized_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line beyond the bound ends the watch and is named; events before it arrive."""
    monkeypatch.setattr("fleet.kube.client.MAX_LINE_BYTES", 2**20)
    endless = [b"x" * 2**18 for _ in range(5)]
    seen, error = await watched(tmp_path, chunked(line("a"), *endless, then="silent"))
    assert seen == [event("a")]
    assert str(error) == "watch pods in namespace a: a line of the watch is over 1 MiB"


async def test_closing_the_iterator_closes_the_connection(tmp_path: Path) -> None:
    """Else each watch that is given up would stay open at the server."""
    async with (
        scripted(chunked(line("a"), then="silent")) as server,
        client_of(tmp_path, server.url) as client,
    ):
        watch = client.watch(PATH, params={}, read_timeout_seconds=600)
        assert await anext(watch) == event("a")
        assert not server.closed.is_set()
        await watch.aclose()
        async with asyncio.timeout(5):
            await server.closed.wait()

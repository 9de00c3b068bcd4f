"""The client's calls against a server that answers by script."""

import asyncio
import json
import logging
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from fleet.errors import (
    KubeConflict,
    KubeError,
    KubeForbidden,
    KubeNotFound,
    KubeThrottled,
    KubeUnavailable,
)
from fleet.kube.contract import SERVER_SIDE_APPLY
from tests.kube_clients import client_of
from tests.scripted_http import Answer, answer, chunked, scripted, status

PATH = "/api/v1/namespaces/a/pods"
SECRET = "s3cret-token-value"
WHO = {"token": SECRET}


def test_a_fleet_without_kubernetes_does_not_pay() -> None:
    """Importing the client does not import the package `kubernetes` (0.4 s)."""
    code = "import sys, fleet.kube.client; sys.exit('kubernetes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_what_is_sent(tmp_path: Path) -> None:
    """Method, path, encoded parameters, body, content type and credentials, each as asked."""
    async with (
        scripted(answer(200, {"ok": 1}), repeat=True) as server,
        client_of(tmp_path, server.url, WHO) as client,
    ):
        assert client.namespace == "fleet-ns"
        assert await client.get(PATH, params={"labelSelector": "a=b,c in (d)"}) == {"ok": 1}
        await client.create(PATH, {"n": "ä"})
        await client.replace(f"{PATH}/p", {"n": 2})
        await client.patch(f"{PATH}/p", {"n": 3})
        apply = {"fieldManager": "f"}
        await client.patch(f"{PATH}/p", {"n": 4}, content_type=SERVER_SIDE_APPLY, params=apply)
        await client.delete(f"{PATH}/p")
        await client.delete(f"{PATH}/p", body={"preconditions": {"uid": "u"}})
    get, create, replace, patch, apply_patch, delete, delete_this = server.asked
    assert get.method == "GET"
    assert get.target in {
        f"{PATH}?labelSelector=a%3Db%2Cc+in+%28d%29",
        f"{PATH}?labelSelector=a%3Db,c+in+(d)",
    }
    assert get.headers["authorization"] == f"Bearer {SECRET}"
    assert get.headers["accept-encoding"] == "identity"
    assert get.headers["user-agent"].startswith("epp-fleet/")
    assert (create.method, create.target, json.loads(create.body)) == ("POST", PATH, {"n": "ä"})
    assert (replace.method, replace.headers["content-type"]) == ("PUT", "application/json")
    assert patch.headers["content-type"] == "application/merge-patch+json"
    assert apply_patch.headers["content-type"] == "application/apply-patch+yaml"
    assert (apply_patch.target, json.loads(apply_patch.body)) == (
        f"{PATH}/p?fieldManager=f",
        {"n": 4},
    )
    assert (delete.method, delete.body) == ("DELETE", b"")
    assert json.loads(delete_this.body) == {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        (status(403, 'User "u" cannot list'), KubeForbidden, 'RBAC lacks verb "list"'),
        (status(404, "gone"), KubeNotFound, "HTTP 404: gone"),
        (status(409, "again"), KubeConflict, "HTTP 409: again"),
        (status(429, "slow", Retry_After="4"), KubeThrottled, "HTTP 429: slow"),
        (status(500, "etcd"), KubeUnavailable, "HTTP 500: etcd"),
        (answer(200, b"<html>"), KubeUnavailable, "the answer is no JSON"),
        (Answer([b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"], "close"), KubeUnavailable, ""),
        (Answer([b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"], "reset"), KubeUnavailable, ""),
        (Answer([b"SSH-2.0-x\r\n\r\n"], "close"), KubeUnavailable, ""),
        (Answer([], "close"), KubeUnavailable, ""),
        (Answer([], "reset"), KubeUnavailable, ""),
        (chunked(b'{"a":', then="close"), KubeUnavailable, ""),
    ],
)
async def test_errors(tmp_path: Path, given: Answer, kind: type[KubeError], words: str) -> None:
    """Whatever happens on the wire is one of our errors, and names what was asked."""
    async with scripted(given) as server, client_of(tmp_path, server.url) as client:
        with pytest.raises(kind, match=r"list pods in namespace a: .") as caught:
            await client.get(PATH)
    assert words in str(caught.value)
    assert len(server.asked) == 1


async def test_throttled_for_as_long_as_the_server_says(tmp_path: Path) -> None:
    """Nothing is waited for in here; the caller is told."""
    given = status(429, Retry_After="4")
    async with scripted(given) as server, client_of(tmp_path, server.url) as client:
        with pytest.raises(KubeThrottled) as caught:
            await client.get(PATH)
    assert caught.value.retry_after_seconds == 4.0


async def test_nobody_listens(tmp_path: Path) -> None:
    """A refused connection is KubeUnavailable at once."""
    async with scripted() as server:
        url = server.url
    async with client_of(tmp_path, url) as client:
        with pytest.raises(KubeUnavailable, match="Cannot connect"):
            await client.get(PATH)


@pytest.mark.parametrize(
    "given",
    [
        Answer([], "silent"),
        Answer([b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{"], "silent"),
        Answer([b"HTTP/1.1 500 X\r\nContent-Length: 9\r\n\r\n{"], "silent"),
    ],
)
async def test_no_call_takes_longer_than_it_may(tmp_path: Path, given: Answer) -> None:
    """Before the head, in the body, in an error's body: the limit is for the whole call."""
    async with scripted(given) as server, client_of(tmp_path, server.url) as client:
        with pytest.raises(KubeUnavailable, match=r"no answer within 0\.02 s"):
            await client.get(PATH, timeout_seconds=0.02)


async def test_the_default_limit_is_the_setting(tmp_path: Path) -> None:
    """`kubernetes.request_timeout_seconds` holds where the caller names none."""
    async with (
        scripted() as server,
        client_of(tmp_path, server.url, request_timeout_seconds=0.1) as client,
    ):
        with pytest.raises(KubeUnavailable, match=r"no answer within 0\.1 s"):
            await client.create(PATH, {})


async def test_a_write_is_sent_once(tmp_path: Path) -> None:
    """A PUT on a kept connection that dies is not repeated: it would conflict with itself."""
    script = (answer(200, {}), Answer([], "close"), answer(200, {}))
    async with scripted(*script) as server, client_of(tmp_path, server.url) as client:
        await client.get(PATH)
        with pytest.raises(KubeUnavailable):
            await client.replace(f"{PATH}/p", {})
    assert [each.method for each in server.asked] == ["GET", "PUT"]


async def test_an_answer_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held of an answer is bounded, and the message says how to ask for less."""
    monkeypatch.setattr("fleet.kube.client.MAX_RESPONSE_BYTES", 2 * 2**20)
    pieces = [b" " * 2**18 for _ in range(20)]
    async with scripted(chunked(*pieces)) as server, client_of(tmp_path, server.url) as client:
        with pytest.raises(KubeUnavailable, match=r"over 2 MiB; lower kubernetes\.list_page"):
            await client.get(PATH)


async def test_a_cancelled_call_leaves_no_answer_behind(tmp_path: Path) -> None:
    """The next call gets its own answer."""
    late = answer(200, {"late": True})
    script = (Answer([*late.pieces], "silent"), answer(200, {"mine": True}))
    async with scripted(*script) as server, client_of(tmp_path, server.url) as client:
        call = asyncio.ensure_future(client.get(PATH))
        while not server.asked:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await client.get(PATH) == {"mine": True}


async def test_a_closed_client(tmp_path: Path) -> None:
    """KubeUnavailable, as for any server that is not there."""
    async with scripted() as server, client_of(tmp_path, server.url) as client:
        await client.close()
        with pytest.raises(KubeUnavailable, match="client is closed"):
            await client.get(PATH)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 429, 500, 503])
async def test_no_credential_in_messages_or_logs(
    tmp_path: Path, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even where a server repeats the header in its error."""
    caplog.set_level(logging.DEBUG)
    page = f"you sent Authorization: Bearer {SECRET}, {SECRET}".encode()
    async with (
        scripted(answer(code, page), repeat=True) as server,
        client_of(tmp_path, server.url, WHO) as client,
    ):
        with pytest.raises(KubeError, match="you sent") as caught:
            await client.get(PATH)
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(client)
    assert SECRET not in shown


async def test_watches_do_not_starve_calls(tmp_path: Path) -> None:
    """100 connections, the package's own limit, would be used up by 100 watches."""
    event = b'{"type":"ADDED","object":{}}\n'
    async with (
        scripted(*[chunked(event, then="silent")] * 120, answer(200, {})) as server,
        client_of(tmp_path, server.url) as client,
    ):
        watches: list[Any] = [
            client.watch(PATH, params={}, read_timeout_seconds=10) for _ in range(120)
        ]
        for watch in watches:
            await anext(watch)
        assert await client.get(PATH) == {}
        for watch in watches:
            await watch.aclose()

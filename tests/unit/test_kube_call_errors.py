"""What a client of an API server counts as failed calls, over HTTP."""

import contextlib
from pathlib import Path

from fleet.errors import KubeError
from tests.kube_clients import client_of
from tests.scripted_http import Answer, answer, scripted, status

PATH = "/api/v1/namespaces/a/pods"


async def test_each_failed_call_counts_once(tmp_path: Path) -> None:
    """Whether the server answers an error, hangs up, or is not there; a conflict or a 404 is an
    answer, and so is what is good."""
    script = [
        status(403),
        status(500),
        Answer([], "reset"),
        status(429, Retry_After="1"),
        status(422),
        status(409),
        status(404),
        answer(200, {}),
    ]
    async with scripted(*script) as server, client_of(tmp_path, server.url) as client:
        for _ in script:
            with contextlib.suppress(KubeError):
                await client.get(PATH)
        assert client.failed.counts == {
            "unavailable": 2,
            "forbidden": 1,
            "throttled": 1,
            "refused": 1,
        }
    async with client_of(tmp_path, "http://127.0.0.1:1") as client:
        with contextlib.suppress(KubeError):
            await client.replace(f"{PATH}/p", {})
        assert client.failed.counts["unavailable"] == 1

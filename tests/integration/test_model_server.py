"""The simulated servers over real sockets: the calls that clients and scrapers make."""

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest
import pytest_asyncio

from fleet.clock import SystemClock
from fleet.local.model_config import ModelServer, ModelServersConfig
from fleet.local.model_engine import Speed
from fleet.local.model_server import ModelServers
from tests.ports import free_port

FAST = Speed(prompt_token_seconds=0.0, token_seconds=0.0)


class _Pods:
    """Two running pods and a client."""

    def __init__(self, http: aiohttp.ClientSession, first: str, second: str) -> None:
        self.http, self.first, self.second = http, first, second


@pytest_asyncio.fixture
async def pods() -> AsyncIterator[_Pods]:
    addresses = [f"{host}:{free_port(host)}" for host in ("127.0.0.2", "127.0.0.3")]
    config = ModelServersConfig(
        (
            ModelServer(addresses[0], "red/r-0", ("red-8b", "red-lora")),
            ModelServer(addresses[1], "blue/b-0", ("blue-8b",)),
        ),
        FAST,
    )
    servers = ModelServers(config, SystemClock())
    await servers.start()
    try:
        async with aiohttp.ClientSession() as http:
            yield _Pods(http, *(f"http://{address}" for address in addresses))
    finally:
        await servers.close()


def _chat(**more: object) -> dict[str, object]:
    return {"model": "red-8b", "messages": [{"role": "user", "content": "x" * 40}], **more}


async def test_chat_answers_and_names_the_pod(pods: _Pods) -> None:
    """A chat completion has text, usage (40 characters = 11 tokens) and the pod's name."""
    url = f"{pods.first}/v1/chat/completions"
    async with pods.http.post(url, json=_chat(max_tokens=3)) as answer:
        body = await answer.json()
        assert answer.status == 200
        assert answer.headers["x-served-by"] == "red/r-0"
    assert body["choices"][0]["message"]["content"] == "every request finds"
    assert body["usage"] == {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}


async def test_text_completion_answers(pods: _Pods) -> None:
    """The older call works too, on the other address."""
    ask = {"model": "blue-8b", "prompt": "hello", "max_tokens": 1}
    async with pods.http.post(f"{pods.second}/v1/completions", json=ask) as answer:
        body = await answer.json()
        assert answer.headers["x-served-by"] == "blue/b-0"
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", "every")


@pytest.mark.parametrize("usage", [True, False])
async def test_stream_ends_with_done_and_usage_when_asked(pods: _Pods, usage: bool) -> None:
    """One event a token, then usage if asked for, then [DONE]; the pod is named in the header."""
    ask = _chat(stream=True, max_tokens=4, stream_options={"include_usage": usage})
    async with pods.http.post(f"{pods.first}/v1/chat/completions", json=ask) as answer:
        text = await answer.text()
        assert answer.headers["x-served-by"] == "red/r-0"
        assert answer.headers["content-type"].startswith("text/event-stream")
    events = [part.removeprefix("data: ") for part in text.strip().split("\n\n")]
    assert events[-1] == "[DONE]"
    parsed = [json.loads(event) for event in events[:-1]]
    words = [event["choices"][0]["delta"]["content"] for event in parsed if event["choices"]]
    assert words == ["every ", "request ", "finds ", "its "]
    totals = [event["usage"]["total_tokens"] for event in parsed if "usage" in event]
    assert totals == ([15] if usage else [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{not json", 400),
        (b"[]", 400),
        (b'{"messages": []}', 400),
        (b'{"model": "red-8b"}', 400),
        (b'{"model": "red-8b", "messages": [], "max_tokens": 0}', 400),
        (b'{"model": "blue-8b", "messages": []}', 404),
    ],
)
async def test_refusals_are_openai_shaped(pods: _Pods, body: bytes, status: int) -> None:
    """Bad JSON or fields: 400; a model of another pool: 404; both with an error object."""
    async with pods.http.post(f"{pods.first}/v1/chat/completions", data=body) as answer:
        assert answer.status == status
        assert (await answer.json())["error"]["message"]


async def test_models_health_and_metrics(pods: _Pods) -> None:
    """Each address lists its own models; metrics count its own requests only."""
    async with pods.http.get(f"{pods.first}/v1/models") as answer:
        assert [m["id"] for m in (await answer.json())["data"]] == ["red-8b", "red-lora"]
    async with pods.http.get(f"{pods.second}/health") as answer:
        assert answer.status == 200
    await (await pods.http.post(f"{pods.first}/v1/chat/completions", json=_chat())).read()
    pages = []
    for base in (pods.first, pods.second):
        async with pods.http.get(f"{base}/metrics") as answer:
            pages.append(await answer.text())
    assert 'vllm:num_requests_waiting{model_name="red-8b"} 0' in pages[0]
    assert 'vllm:num_requests_running{model_name="red-8b"} 0' in pages[0]
    assert 'vllm:kv_cache_usage_perc{model_name="red-8b"} 0.0' in pages[0]
    assert 'vllm:request_success_total{model_name="red-8b"} 1' in pages[0]
    assert 'vllm:request_success_total{model_name="blue-8b"} 0' in pages[1]

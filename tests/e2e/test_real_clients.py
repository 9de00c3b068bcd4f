"""OpenAI's and Anthropic's own clients, through a real Envoy, to a model under another name."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from fleet.model import Hold
from fleet.settings import WorkerSettings
from tests import manifest_texts
from tests.envoy import Envoy
from tests.ext_proc_gateway import resources
from tests.model_answers import TEXT, Answers, model_answers
from tests.worker_inprocess import DEADLINE, Running, TestLeader, running_worker, write_pool

AUTHORITY = "pool-a-epp.ns1.svc.cluster.local:9002"
KNOWN, SERVED = "public-model", "the-served-model-with-a-longer-name"
LARGEST = 256 * 1024


class Scene:
    """A gateway, its worker and the model server behind."""

    def __init__(self, running: Running, answers: Answers, url: str, folder: Path) -> None:
        self.running = running
        self.answers = answers
        self.url = url
        self.folder = folder
        self.openai = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
        self.anthropic = anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)


@asynccontextmanager
async def scene(folder: Path, *, body_mode: str = "FULL_DUPLEX_STREAMED") -> AsyncIterator[Scene]:
    manifests = folder / "manifests"
    manifests.mkdir()
    rule = {
        "matches": [{"model": {"value": KNOWN}}],
        "targets": [{"modelRewrite": SERVED}],
    }
    manifests.joinpath("rewrite.yaml").write_text(
        manifest_texts.text(manifest_texts.rewrite(rules=[rule]))
    )
    settings = WorkerSettings(
        host="127.0.0.1",
        ext_proc_port=0,
        health_port=0,
        internal_port=0,
        http_port=0,
        max_body_bytes=LARGEST,
    )
    async with model_answers(SERVED) as answers:
        host, _, port = answers.address.rpartition(":")
        write_pool(manifests, "pool-a", host, port=int(port))
        async with running_worker(manifests, worker_settings=settings) as running:
            leader = TestLeader(running.worker.addresses.internal, 1)
            await leader.connect()
            await leader.assign(running.share(1, pool_a=Hold.OWNER))
            picker = resources(running.worker.addresses.ext_proc, AUTHORITY, body_mode=body_mode)
            async with Envoy(folder, picker) as envoy, asyncio.timeout(6 * DEADLINE):
                made = Scene(
                    running, answers, f"http://{await envoy.listener('gateway')}", manifests
                )
                try:
                    yield made
                finally:
                    await made.openai.close()
                    await made.anthropic.close()
                    await leader.close()


async def test_openai(tmp_path: Path) -> None:
    """Chat, streamed and not, and embeddings: whole texts, usage, and the name the client knows;
    the model server is asked for its own, with a length that is right."""
    async with scene(tmp_path) as made:
        client = made.openai
        ask: list[ChatCompletionMessageParam] = [{"role": "user", "content": "who are you"}]
        whole = await client.chat.completions.create(model=KNOWN, messages=ask)
        assert (whole.model, whole.choices[0].message.content) == (KNOWN, TEXT)
        assert whole.usage is not None
        assert whole.usage.total_tokens == 8
        events = await client.chat.completions.create(model=KNOWN, messages=ask, stream=True)
        chunks = [chunk async for chunk in events]
        assert {chunk.model for chunk in chunks} == {KNOWN}
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == TEXT
        vectors = await client.embeddings.create(model=KNOWN, input=["a", "b"])
        assert vectors.model == KNOWN
        assert [each.embedding for each in vectors.data] == [[0.5, -1.25]] * 2
        for body, headers in zip(made.answers.bodies, made.answers.headers, strict=True):
            assert json.loads(body)["model"] == SERVED
            assert headers.get("content-length", str(len(body))) == str(len(body))
        assert made.running.worker.figures().responses["complete"] == 3


async def test_anthropic(tmp_path: Path) -> None:
    """Messages, streamed and not."""
    async with scene(tmp_path) as made:
        client = made.anthropic
        ask: list[anthropic.types.MessageParam] = [{"role": "user", "content": "who are you"}]
        whole = await client.messages.create(model=KNOWN, messages=ask, max_tokens=9)
        assert whole.model == KNOWN
        assert isinstance(whole.content[0], anthropic.types.TextBlock)
        assert whole.content[0].text == TEXT
        async with client.messages.stream(model=KNOWN, messages=ask, max_tokens=9) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        assert text == TEXT
        assert final.model == KNOWN
        assert final.usage.output_tokens == 5


async def test_errors_are_the_clients_own_exceptions(tmp_path: Path) -> None:
    """400, 413 and 503 as the endpoint picker says them, 404 as the model server does; their
    messages can be read (agentgateway/agentgateway#2009)."""
    async with scene(tmp_path) as made:
        create = made.openai.embeddings.create
        with pytest.raises(openai.BadRequestError) as bad:
            await create(model="", input="x")
        assert "'model'" in bad.value.message
        assert bad.value.type == "invalid_request_error"
        with pytest.raises(openai.APIStatusError) as large:
            await create(model=KNOWN, input="x" * LARGEST)
        assert large.value.status_code == 413
        assert "larger" in large.value.message
        with pytest.raises(openai.NotFoundError) as unknown:
            await create(model="unknown", input="x")
        assert "no such model" in unknown.value.message
        with pytest.raises(anthropic.BadRequestError) as refused:
            await made.anthropic.messages.create(
                model="", messages=[{"role": "user", "content": "x"}], max_tokens=1
            )
        assert "'model'" in str(refused.value)
        made.folder.joinpath("pool-a.yaml").write_text(
            manifest_texts.text(manifest_texts.pool("pool-a"))
        )
        (group,) = made.running.worker.holdings
        (pool,) = group.states.values()
        while pool.endpoints():
            await asyncio.sleep(0.01)
        with pytest.raises(openai.InternalServerError) as none:
            await create(model=KNOWN, input="x")
        assert none.value.status_code == 503
        headers = none.value.response.headers
        assert headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


async def test_packed_bodies_reach_the_model_server_readable(tmp_path: Path) -> None:
    """Rewritten they go on unpacked, and nothing calls them packed any more."""
    async with scene(tmp_path) as made, aiohttp.ClientSession() as client:
        body = gzip.compress(json.dumps({"model": KNOWN, "input": ["a"]}).encode())
        headers = {"content-encoding": "gzip", "content-type": "application/json"}
        url = f"{made.url}/v1/embeddings"
        async with client.post(url, data=body, headers=headers) as answer:
            assert answer.status == 200, await answer.text()
        assert json.loads(made.answers.bodies[0])["model"] == SERVED


async def test_buffering_gateways(tmp_path: Path) -> None:
    """Requests and responses are rewritten there too (llm-d/llm-d-router#858)."""
    async with scene(tmp_path, body_mode="BUFFERED") as made:
        vectors = await made.openai.embeddings.create(model=KNOWN, input=["a", "b"])
        assert vectors.model == KNOWN
        (headers,) = made.answers.headers
        assert headers["content-length"] == str(len(made.answers.bodies[0]))


@pytest.mark.parametrize("body_mode", ["STREAMED", "NONE"])
async def test_gateways_whose_bodies_are_not_seen_in_time(tmp_path: Path, body_mode: str) -> None:
    """They are routed by their headers, at once, and left as they are (llm-d/llm-d-router#858)."""
    async with scene(tmp_path, body_mode=body_mode) as made:
        vectors = await made.openai.embeddings.create(model=SERVED, input=["a", "b" * 100_000])
        assert vectors.model == SERVED
        (body,) = made.answers.bodies
        assert json.loads(body)["input"] == ["a", "b" * 100_000]

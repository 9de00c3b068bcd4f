"""Simulated vLLM servers: one process, many addresses, the OpenAI calls and vLLM's metrics.

    python -m fleet.local.model_server --config servers.json

Every address is a pod of its own: own queue, own batch, own metrics. Answers name the pod in the
header `x-served-by`, so that whoever asks can tell where the request went.
"""

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from fleet.clock import Clock, SystemClock
from fleet.errors import SettingsError
from fleet.local.model_config import ModelServer, ModelServersConfig, read_config, split_address
from fleet.local.model_engine import Engine, EngineFull

SERVED_BY = "x-served-by"
MAX_BODY_BYTES = 64 * 1024 * 1024
DEFAULT_MAX_TOKENS = 16
MOST_TOKENS = 4096
SSE_HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}
WORDS = ("every", "request", "finds", "its", "pool", "and", "each", "pool", "its", "worker")


@dataclass(frozen=True, slots=True)
class _Ask:
    """A request as far as it matters here."""

    model: str
    chat: bool
    stream: bool
    include_usage: bool
    max_tokens: int
    prompt_tokens: int

    def usage(self, made: int) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": made,
            "total_tokens": self.prompt_tokens + made,
        }


def _refuse(status: int, message: str, code: str) -> web.Response:
    kind = "NotFoundError" if status == 404 else "BadRequestError"
    error = {"message": message, "type": kind, "param": None, "code": code}
    return web.json_response({"error": error}, status=status)


def _prompt_text(body: Mapping[str, Any], *, chat: bool) -> str:
    if not chat:
        prompt = body.get("prompt", "")
        return prompt if isinstance(prompt, str) else json.dumps(prompt)
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise TypeError("messages: a list is needed")
    parts = []
    for message in messages:
        if not isinstance(message, dict):
            raise TypeError("messages: each must be an object")
        content = message.get("content", "")
        parts.append(content if isinstance(content, str) else json.dumps(content))
    return "\n".join(parts)


def _read_ask(raw: bytes, *, chat: bool) -> _Ask:
    """The request in `raw`; TypeError or ValueError say what is wrong with it."""
    body = json.loads(raw)
    if not isinstance(body, dict):
        raise TypeError("the body must be a JSON object")
    model = body.get("model")
    if not isinstance(model, str):
        raise TypeError("model: a string is needed")
    limit = body.get("max_completion_tokens", body.get("max_tokens", DEFAULT_MAX_TOKENS))
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise TypeError("max_tokens: a positive number is needed")
    options = body.get("stream_options")
    return _Ask(
        model=model,
        chat=chat,
        stream=body.get("stream") is True,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
        max_tokens=min(limit, MOST_TOKENS),
        prompt_tokens=len(_prompt_text(body, chat=chat)) // 4 + 1,
    )


def _family(name: str, text: str, kind: str, rows: Sequence[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return "\n".join([*lines, *(f"{name}{label} {value}" for label, value in rows), ""])


class SimulatedPod:
    """One address: its models, its engine and its answers."""

    def __init__(self, server: ModelServer, engine: Engine, clock: Clock) -> None:
        self.server = server
        self.engine = engine
        self._clock = clock
        self._number = 0
        self._refused: dict[int, int] = {}

    async def answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        """One completion; 400 for a bad body, 404 for a model that is not served here."""
        try:
            ask = _read_ask(await request.read(), chat=chat)
        except (TypeError, ValueError) as error:
            return self._no(400, f"bad request: {error}", "invalid_request")
        if ask.model not in self.server.models:
            return self._no(
                404, f"The model `{ask.model[:200]}` does not exist.", "model_not_found"
            )
        self._number += 1
        name = f"{'chatcmpl' if chat else 'cmpl'}-{self._number}"
        try:
            async with self.engine.admit(ask.prompt_tokens, ask.max_tokens):
                if ask.stream:
                    return await self._stream(request, ask, name)
                await self.engine.make(ask.max_tokens)
        except EngineFull as error:
            return self._no(503, str(error), "engine_full")
        text = " ".join(WORDS[i % len(WORDS)] for i in range(ask.max_tokens))
        return web.json_response(self._body(ask, name, text, ask.max_tokens))

    def _no(self, status: int, message: str, code: str) -> web.Response:
        self._refused[status] = self._refused.get(status, 0) + 1
        return _refuse(status, message, code)

    def _head(self, ask: _Ask, name: str, kind: str) -> dict[str, Any]:
        created = int(self._clock.wall())
        return {"id": name, "object": kind, "created": created, "model": ask.model}

    def _body(self, ask: _Ask, name: str, text: str, made: int) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if ask.chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        kind = "chat.completion" if ask.chat else "text_completion"
        return {**self._head(ask, name, kind), "choices": [choice], "usage": ask.usage(made)}

    async def _events(self, ask: _Ask, name: str) -> AsyncIterator[bytes]:
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        head = self._head(ask, name, kind)
        for number in range(ask.max_tokens):
            await self.engine.make(1)
            word = WORDS[number % len(WORDS)] + " "
            last = number == ask.max_tokens - 1
            choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if last else None}
            choice.update({"delta": {"content": word}} if ask.chat else {"text": word})
            yield b"data: " + json.dumps({**head, "choices": [choice]}).encode() + b"\n\n"
        if ask.include_usage:
            final = {**head, "choices": [], "usage": ask.usage(ask.max_tokens)}
            yield b"data: " + json.dumps(final).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def _stream(self, request: web.Request, ask: _Ask, name: str) -> web.StreamResponse:
        response = web.StreamResponse(headers=SSE_HEADERS)
        await response.prepare(request)
        async for event in self._events(ask, name):
            await response.write(event)
        await response.write_eof()
        return response

    def models(self) -> web.Response:
        """`GET /v1/models`."""
        base = self.server.models[0]
        data = [
            {"id": model, "object": "model", "owned_by": "vllm", "root": base}
            for model in self.server.models
        ]
        return web.json_response({"object": "list", "data": data})

    def metrics(self) -> web.Response:
        """vLLM's names, as far as an endpoint picker reads them."""
        engine = self.engine
        label = f'{{model_name="{self.server.models[0]}"}}'
        gauges = (
            ("vllm:num_requests_running", "Requests in the batch.", engine.running),
            ("vllm:num_requests_waiting", "Requests in the queue.", engine.waiting),
            ("vllm:kv_cache_usage_perc", "KV-cache usage, 1 is full.", round(engine.kv_usage, 6)),
        )
        counters = (
            ("vllm:prompt_tokens_total", "Prompt tokens.", engine.prompt_tokens),
            ("vllm:generation_tokens_total", "Tokens made.", engine.generated_tokens),
            ("vllm:request_success_total", "Requests that ran to their end.", engine.finished),
        )
        refused = [(f'{{code="{code}"}}', count) for code, count in sorted(self._refused.items())]
        page = [_family(*row[:2], "gauge", [(label, row[2])]) for row in gauges]
        page += [_family(*row[:2], "counter", [(label, row[2])]) for row in counters]
        page.append(_family("simulated_refused_total", "Requests refused.", "counter", refused))
        return web.Response(
            body="".join(page).encode(),
            headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"},
        )


class ModelServers:
    """All simulated pods behind one aiohttp application; the local address says which is meant."""

    def __init__(self, config: ModelServersConfig, clock: Clock) -> None:
        self._pods = {
            split_address(server.address): SimulatedPod(server, Engine(config.speed, clock), clock)
            for server in config.servers
        }
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.add_routes(
            [
                web.post("/v1/chat/completions", self._chat),
                web.post("/v1/completions", self._completion),
                web.get("/v1/models", self._models),
                web.get("/metrics", self._metrics),
                web.get("/health", self._health),
            ]
        )
        application.on_response_prepare.append(self._sign)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Listen on every address.

        Raises:
            OSError: an address cannot be bound.
        """
        await self._runner.setup()
        for host, port in self._pods:
            await web.TCPSite(self._runner, host, port, backlog=1024).start()

    async def close(self) -> None:
        """Stop listening and cut what runs."""
        await self._runner.cleanup()

    def _pod(self, request: web.Request) -> SimulatedPod:
        if request.transport is None:
            raise web.HTTPServiceUnavailable(text="the connection is gone")
        host, port = request.transport.get_extra_info("sockname")[:2]
        return self._pods[(host, port)]

    async def _sign(self, request: web.Request, response: web.StreamResponse) -> None:
        if request.transport is not None:
            response.headers[SERVED_BY] = self._pod(request).server.pod

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._pod(request).answer(request, chat=True)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        return await self._pod(request).answer(request, chat=False)

    async def _models(self, request: web.Request) -> web.Response:
        return self._pod(request).models()

    async def _metrics(self, request: web.Request) -> web.Response:
        return self._pod(request).metrics()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="")


async def serve(config: ModelServersConfig) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    servers = ModelServers(config, SystemClock())
    try:
        await servers.start()
        await stop.wait()
    finally:
        await servers.close()


def main() -> int:
    """Entry point; 2 for a bad configuration or an address that cannot be bound."""
    parser = argparse.ArgumentParser(prog="python -m fleet.local.model_server", description=__doc__)
    parser.add_argument("--config", required=True, type=Path, help="JSON file with the servers")
    arguments = parser.parse_args()
    try:
        config = read_config(arguments.config)
        asyncio.run(serve(config))
    except (SettingsError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

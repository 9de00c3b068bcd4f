"""A model server that answers as OpenAI's and Anthropic's do, as far as their clients look.

It knows one model, and keeps what it was asked.
"""

import base64
import json
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

WORDS = ("every ", "request ", "你好🙂 ", "its ", "pool")
TEXT = "".join(WORDS)


class Answers:
    """See the module.

    Attributes:
        model: that is served.
        bodies: of the requests, as they came.
        headers: the same of their headers.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.address = ""
        self.bodies: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []

    async def _read(self, request: web.Request) -> dict[str, Any]:
        body = await request.read()
        self.bodies.append(body)
        self.headers.append({key.lower(): value for key, value in request.headers.items()})
        asked: dict[str, Any] = json.loads(body)
        if asked["model"] != self.model:
            error = {"message": "no such model", "type": "NotFoundError", "code": 404}
            raise web.HTTPNotFound(
                text=json.dumps({"error": error}), content_type="application/json"
            )
        return asked

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """OpenAI's chat completions."""
        asked = await self._read(request)
        head = {"id": "chat-1", "created": 1, "model": self.model}
        usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        if not asked.get("stream"):
            message = {"role": "assistant", "content": TEXT}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            body = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            return web.json_response(body)
        events = []
        for word in WORDS:
            choice = {"index": 0, "finish_reason": None, "delta": {"content": word}}
            events.append({**head, "object": "chat.completion.chunk", "choices": [choice]})
        events.append({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        texts = [f"data: {json.dumps(each)}\n\n" for each in events]
        return await _streamed(request, [*texts, "data: [DONE]\n\n"])

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        """OpenAI's embeddings, in the coding that its client asks for."""
        asked = await self._read(request)
        vector = [0.5, -1.25]
        coded = base64.b64encode(struct.pack("<2f", *vector)).decode()
        data = [
            {
                "object": "embedding",
                "index": index,
                "embedding": coded if asked.get("encoding_format") == "base64" else vector,
            }
            for index, _ in enumerate(asked["input"])
        ]
        usage = {"prompt_tokens": 2, "total_tokens": 2}
        return web.json_response(
            {"object": "list", "data": data, "model": self.model, "usage": usage}
        )

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Anthropic's messages."""
        asked = await self._read(request)
        head = {
            "id": "msg-1",
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "stop_sequence": None,
        }
        if not asked.get("stream"):
            content = [{"type": "text", "text": TEXT}]
            usage = {"input_tokens": 3, "output_tokens": 5}
            body = {**head, "content": content, "stop_reason": "end_turn", "usage": usage}
            return web.json_response(body)
        usage = {"input_tokens": 3, "output_tokens": 1}
        empty: dict[str, Any] = {**head, "content": [], "stop_reason": None, "usage": usage}
        events: list[dict[str, Any]] = [
            {"type": "message_start", "message": empty},
            {"type": "content_block_start", "index": 0, "content_block": _text("text", "")},
        ]
        for word in WORDS:
            delta = _text("text_delta", word)
            events.append({"type": "content_block_delta", "index": 0, "delta": delta})
        end = {"stop_reason": "end_turn", "stop_sequence": None}
        events += [
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}},
            {"type": "message_stop"},
        ]
        return await _streamed(
            request, [f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events]
        )


def _text(kind: str, text: str) -> dict[str, str]:
    return {"type": kind, "text": text}


async def _streamed(request: web.Request, events: list[str]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    for event in events:
        data = event.encode()
        middle = len(data) // 2  # events need not come in one piece
        await response.write(data[:middle])
        await response.write(data[middle:])
    await response.write_eof()
    return response


@asynccontextmanager
async def model_answers(model: str) -> AsyncIterator[Answers]:
    """On a free port."""
    made = Answers(model)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/v1/chat/completions", made.chat)
    app.router.add_post("/v1/embeddings", made.embeddings)
    app.router.add_post("/v1/messages", made.messages)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()

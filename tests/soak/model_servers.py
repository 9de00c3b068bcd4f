"""All model servers in one: every address of their network answers the same small metrics page, and
chats with the number that the request has as its `user`.

    python -m tests.soak.model_servers     (as a process of its own)
"""

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import cast

import uvloop

PORT = 8000
EVENTS = 6
EVENT_SECONDS = 0.06
"""Answers that are streamed take EVENTS x this."""

_PAGE = b"""# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting 0
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 1
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc 0.25
"""
_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"
    % len(_PAGE)
) + _PAGE
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_USER = re.compile(rb'"user": ?"(\w+)"')
_STREAM = re.compile(rb'"stream": ?true')


class _Answering(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = bytearray()
        self._chatting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by name
        self._pod = transport.get_extra_info("sockname")[0].encode()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._chatting is not None:
            self._chatting.cancel()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            if self._data.startswith(b"GET "):
                del self._data[: end + 4]
                self._transport.write(_ANSWER)
                continue
            head, body = bytes(self._data[:end]), bytes(self._data[end + 4 :])
            length = _LENGTH.search(head)
            whole = len(body) >= int(length[1]) if length else body.endswith(b"0\r\n\r\n")
            if not whole:
                return
            self._data.clear()
            self._chat(body)

    def _chat(self, body: bytes) -> None:
        user = _USER.search(body)
        number = user[1] if user else b""
        answer = b'{"id":"%s","object":"chat.completion","choices":[{"index":0}]}' % number
        head = b"HTTP/1.1 200 OK\r\nx-served-by: %s\r\n" % self._pod
        if not _STREAM.search(body):
            head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
            self._transport.write(head + answer)
            return
        head += b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self._transport.write(head)
        self._event(b"data: %s\n\n" % answer, EVENTS)

    def _event(self, event: bytes, left: int) -> None:
        if left == 0:
            self._transport.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            return
        self._transport.write(_chunk(event))
        loop = asyncio.get_running_loop()
        self._chatting = loop.call_later(EVENT_SECONDS, self._event, event, left - 1)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@contextlib.asynccontextmanager
async def running_model_servers() -> AsyncIterator[None]:
    """For the length of a `with` block."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answering, "0.0.0.0", PORT, backlog=4096)
    try:
        yield
    finally:
        server.close()


@contextlib.contextmanager
def model_servers_process() -> Iterator[None]:
    """The same as a process of its own; listens when the block begins."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline(), "the model servers do not listen"
        yield
    finally:
        process.kill()
        process.wait(10)
        process.stdout.close()


async def _forever() -> None:
    async with running_model_servers():
        sys.stdout.write("listening\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_forever())

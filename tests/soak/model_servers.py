"""All model servers in one: every address of their network answers the same small metrics page."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

PORT = 8000
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


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        for _ in range(data.count(b"\r\n\r\n")):
            self._transport.write(_ANSWER)


@contextlib.asynccontextmanager
async def running_model_servers() -> AsyncIterator[None]:
    """For the length of a `with` block."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Answering, "0.0.0.0", PORT, backlog=4096)
    try:
        yield
    finally:
        server.close()

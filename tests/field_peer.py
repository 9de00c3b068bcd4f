"""A gateway's connection to a worker of one good pool, message by message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse

from epp_worker.process import PATH
from fleet.model import Hold
from tests.worker_inprocess import DEADLINE, Running, TestLeader, running_worker, write_pool

A = "10.0.0.1:8000"
AUTHORITY = "pool-a-epp.ns1.svc:9002"
CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
KIB, MIB = 1024, 1024 * 1024


@asynccontextmanager
async def owner_of_pool_a(folder: Path) -> AsyncIterator[Running]:
    """A worker that owns pool-a (one endpoint) and pool-empty (none)."""
    write_pool(folder, "pool-a", "10.0.0.1")
    write_pool(folder, "pool-empty", "")
    async with running_worker(folder) as worker:
        leader = TestLeader(worker.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(worker.share(1, pool_a=Hold.OWNER, pool_empty=Hold.OWNER))
        yield worker
        await leader.close()


class Peer:
    """A gateway's connection without any limit of its own on messages."""

    def __init__(self, running: Running, authority: str = AUTHORITY) -> None:
        self._channel = grpc.aio.insecure_channel(
            running.worker.addresses.ext_proc,
            options=[
                ("grpc.default_authority", authority),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
            ],
        )

    def call(self) -> "Call":
        untyped: Any = self._channel
        return Call(untyped.stream_stream(PATH, _same, _same)())

    async def close(self) -> None:
        await self._channel.close(None)


def _same(message: bytes) -> bytes:
    return message


class Call:
    """One stream."""

    def __init__(self, call: Any) -> None:
        self.raw = call

    async def send(self, *messages: bytes) -> None:
        for message in messages:
            await self.raw.write(message)

    async def reply(self) -> ProcessingResponse:
        async with asyncio.timeout(DEADLINE):
            data = await self.raw.read()
        if not isinstance(data, bytes):
            raise AssertionError(f"no reply: {await self.raw.code()} {await self.raw.details()}")
        return ProcessingResponse.FromString(data)

    async def replies(self, count: int) -> list[ProcessingResponse]:
        return [await self.reply() for _ in range(count)]

    async def body(self, side: str) -> tuple[bytes, list[ProcessingResponse]]:
        """Streamed replies of one side up to the end mark, and their joined bytes."""
        parts = []
        while True:
            parts.append(await self.reply())
            streamed = _streamed(parts[-1], side)
            if streamed.end_of_stream:
                return b"".join(_streamed(part, side).body for part in parts), parts

    async def silent(self) -> bool:
        """Whether nothing comes, judged by a later message that is always answered: none is sent,
        so half-closing ends the stream and whatever was said before it is seen."""
        await self.raw.done_writing()
        async with asyncio.timeout(DEADLINE):
            return not isinstance(await self.raw.read(), bytes)

    async def code(self) -> grpc.StatusCode:
        async with asyncio.timeout(DEADLINE):
            code: grpc.StatusCode = await self.raw.code()
            return code

    def cancel(self) -> None:
        self.raw.cancel()


def _streamed(reply: ProcessingResponse, side: str) -> Any:
    assert reply.WhichOneof("response") == f"{side}_body", reply
    return getattr(reply, f"{side}_body").response.body_mutation.streamed_response


def kind(reply: ProcessingResponse) -> str:
    return str(reply.WhichOneof("response"))


def picked(reply: ProcessingResponse) -> str:
    """The endpoint that a headers or body reply names, by header and metadata alike."""
    common = getattr(reply, kind(reply)).response
    option, *others = common.header_mutation.set_headers
    assert [one.header.key for one in others] in ([], ["x-request-id"])
    assert option.header.key == "x-gateway-destination-endpoint"
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
    assert common.clear_route_cache
    value = reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields[option.header.key]
    assert value.string_value.encode() == option.header.raw_value
    return str(option.header.raw_value.decode())


def inflight(running: Running) -> int:
    return sum(sum(one.values()) for one in running.worker.figures().inflight.values())

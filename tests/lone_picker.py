"""An endpoint picker for one pool, as the reference is one: a process of its own, by grpcio.

`python -m tests.lone_picker LISTEN FILE ENDPOINT...` picks the endpoints in turn, holds each stream
until its response is through, and keeps in FILE how many streams have begun and how many are open.
Ends on SIGTERM when its last stream has.
"""

import asyncio
import itertools
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import grpc
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse

from fleet.local.atomic import write_atomic

KEY = "x-gateway-destination-endpoint"
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
GRACE_SECONDS = 20.0


class _Picker:
    def __init__(self, file: Path, endpoints: list[str]) -> None:
        self._file = file
        self._turns = itertools.cycle(endpoints)
        self._begun = self._open = 0
        self.note(0)

    def note(self, change: int) -> None:
        self._open += change
        self._begun += change > 0
        write_atomic(self._file, f"{self._begun} {self._open}")

    async def process(self, requests: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        self.note(1)
        try:
            picked = False
            async for request in requests:
                phase = request.WhichOneof("request")
                message = getattr(request, phase)
                if phase == "request_headers" and message.end_of_stream:
                    yield self._pick()
                elif phase == "request_body":
                    if not picked:  # the answer to the headers comes before any of the body
                        picked = True
                        yield self._pick()
                    yield _passed_on(phase, message)
                elif phase == "response_headers":
                    yield ProcessingResponse(response_headers={})
                elif phase == "response_body":
                    yield _passed_on(phase, message)
                elif phase in ("request_trailers", "response_trailers"):
                    yield ProcessingResponse(**{phase: {}})
        finally:
            self.note(-1)

    def _pick(self) -> Any:
        reply = ProcessingResponse()
        endpoint = next(self._turns)
        common = reply.request_headers.response
        common.clear_route_cache = True
        option = common.header_mutation.set_headers.add()
        option.header.key, option.header.raw_value = KEY, endpoint.encode()
        reply.dynamic_metadata.update({"envoy.lb": {KEY: endpoint}})
        return reply


def _passed_on(phase: str, message: Any) -> Any:
    reply = ProcessingResponse()
    streamed = getattr(reply, phase).response.body_mutation.streamed_response
    streamed.body, streamed.end_of_stream = message.body, message.end_of_stream
    return reply


async def _serve(listen: str, file: Path, endpoints: list[str]) -> None:
    picker = _Picker(file, endpoints)
    handler = grpc.stream_stream_rpc_method_handler(
        picker.process,
        request_deserializer=ProcessingRequest.FromString,
        response_serializer=ProcessingResponse.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(SERVICE, {"Process": handler}),)
    )
    server.add_insecure_port(listen)
    await server.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    await server.stop(GRACE_SECONDS)


class LonePicker:
    """The process, listening inside the context; killed at its end."""

    def __init__(self, folder: Path, listen: str, endpoints: list[str]) -> None:
        self._file = folder / f"{listen.replace(':', '-')}.count"
        self._command = [sys.executable, "-m", "tests.lone_picker", listen, str(self._file)]
        self._command += endpoints
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the picker did not start"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def streams(self) -> tuple[int, int]:
        """How many have begun, and how many are open."""
        begun, still_open = self._file.read_text().split()
        return int(begun), int(still_open)

    def leave(self) -> int:
        """SIGTERM, until it has gone; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(GRACE_SECONDS + 10.0)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))

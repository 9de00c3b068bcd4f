"""An HTTP/1.1 server that answers each request with the next bytes of a script, and no sooner.

For what no real server does on demand: half an answer, silence, a reset, garbage.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One request as it came; header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """Raw bytes, piece by piece (the loop turns between them), and what happens afterwards.

    Attributes:
        then: `keep` the connection, `close` it, `reset` it, or stay `silent`.
    """

    pieces: Sequence[bytes]
    then: str = "keep"


def answer(
    status: int, body: Any, *, headers: dict[str, str] | None = None, then: str = "keep"
) -> Answer:
    """A whole answer; `body` is bytes, or a value that becomes JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(data))}
    lines |= headers or {}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return Answer([f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + data], then)


def status(code: int, message: str = "because", reason: str = "", **headers: str) -> Answer:
    """An error as an API server sends it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "message": message}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return answer(code, {**body, "reason": reason}, headers=named)


def chunked(*pieces: bytes, then: str = "end") -> Answer:
    """A stream of chunks; `end` closes it properly, anything else is as for Answer."""
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    framed = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    if then == "end":
        return Answer([head, *framed, b"0\r\n\r\n"], "keep")
    return Answer([head, *framed], then)


@dataclass
class ScriptedHttp:
    """The server. What is asked beyond the script gets silence.

    Attributes:
        script: answers to come; the last one is given for ever if `repeat`.
        asked: requests so far.
        closed: set when a client closed a connection.
    """

    script: list[Answer]
    repeat: bool = False
    asked: list[Asked] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    self.asked.append(await _request(reader))
                    then = await self._reply(writer)
                    if then == "silent":
                        await reader.read()
                    if then == "reset":
                        writer.transport.abort()
                    if then != "keep":
                        break
            self.closed.set()
        finally:
            writer.close()

    async def _reply(self, writer: asyncio.StreamWriter) -> str:
        if not self.script:
            return "silent"
        given = self.script[0] if self.repeat and len(self.script) == 1 else self.script.pop(0)
        for piece in given.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        return given.then


async def _request(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, target, headers, body)


@contextlib.asynccontextmanager
async def scripted(*script: Answer, repeat: bool = False) -> AsyncIterator[ScriptedHttp]:
    """A server on a free loopback port with these answers."""
    server = ScriptedHttp(list(script), repeat)
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(server._serve(reader, writer))
        connections.add(task)
        task.add_done_callback(connections.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await asyncio.sleep(0)  # what was closed in the last turn is closed in this one

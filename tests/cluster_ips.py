"""Services' own addresses, as kube-proxy makes them: a connection goes to the endpoint that the
rules named when it was opened, and stays there; the rules follow the slices some time later.
"""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from fleet.model import GroupKey
from tests.tcp_proxy import TcpProxy

SYNC_SECONDS = 1.0
"""How late kube-proxy's rules are (its minSyncPeriod)."""


class ClusterIps:
    """One address for each port of a Service; in use by one event loop.

    Args:
        sync_seconds: from a change of the slices to new connections that follow it.
    """

    def __init__(self, *, sync_seconds: float = SYNC_SECONDS) -> None:
        self._sync_seconds = sync_seconds
        self._proxies: dict[GroupKey, TcpProxy] = {}
        self._pending: set[asyncio.TimerHandle] = set()
        self._settled = asyncio.Event()
        self._settled.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for timer in self._pending:
            timer.cancel()
        for proxy in self._proxies.values():
            await proxy.cut()

    async def address(self, group: GroupKey) -> str:
        """`host:port` that stands for the group; made on first use, leading nowhere."""
        if group not in self._proxies:
            proxy = self._proxies[group] = TcpProxy()
            await proxy.mend()
        return f"127.0.0.1:{self._proxies[group].port}"

    def told(self, group: GroupKey, addresses: Sequence[str]) -> None:
        """What the slices say now; only the first address is used."""
        if group not in self._proxies:
            return
        host, _, port = addresses[0].rpartition(":") if addresses else ("", "", "0")

        def follow() -> None:
            self._pending.discard(timer)
            if not self._pending:
                self._settled.set()
            self._proxies[group].lead_to(host.strip("[]"), int(port))

        self._settled.clear()
        timer = asyncio.get_running_loop().call_later(self._sync_seconds, follow)
        self._pending.add(timer)

    def connections_to(self, group: GroupKey, address: str) -> int:
        """How many connections of a group are open to this endpoint, whatever the rules say."""
        host, _, port = address.rpartition(":")
        return self._proxies[group].connections_to(host.strip("[]"), int(port))

    async def settled(self) -> None:
        """Until new connections follow all that was told."""
        await self._settled.wait()

"""A whole worker whose store fails in every way: picks are the same, and it is told why."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from fleet.model import Hold
from fleet.settings.model import RedisSettings
from fleet.store.redis import RedisStore
from tests.redis_proxy import RedisProxy
from tests.valkey import running_valkey
from tests.worker_inprocess import (
    Gateway,
    Running,
    TestLeader,
    running_worker,
    until,
    write_pool,
)

FAULTS = {
    "timeout": None,
    "loading": b"-LOADING Redis is loading the dataset in memory\r\n",
    "read_only": b"-READONLY You can't write against a read only replica.\r\n",
    "auth": b"-NOAUTH Authentication required.\r\n",
    "permission": b"-NOPERM User worker has no permissions to run the 'hset' command\r\n",
    "memory": b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
    "disk": b"-MISCONF Redis is configured to save RDB snapshots\r\n",
    "format": b"-FORMAT epp: not a member of ours\r\n",
}


@pytest.fixture
async def proxy() -> AsyncIterator[RedisProxy]:
    """Before a real server."""
    with running_valkey() as server:
        async with RedisProxy.before(server.port) as proxy:
            yield proxy


async def errors(running: Running) -> dict[str, float]:
    """`epp_fleet_store_errors_total` of its metrics page, by kind."""
    url = f"http://{running.worker.addresses.http}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        page = await response.text()
    found = re.findall(r'^epp_fleet_store_errors_total\{kind="(\w+)"\} (\S+)$', page, re.MULTILINE)
    return {kind: float(count) for kind, count in found}


async def test_picks_never_depend_on_the_store(tmp_path: Path, proxy: RedisProxy) -> None:
    """Under each fault ten requests are picked as before, beats and share repairs fail, each fault
    is counted by its kind, and the worker neither drops a group nor ends."""
    write_pool(tmp_path, "p", "10.0.0.1")
    store = RedisStore(RedisSettings(proxy.url, request_timeout_seconds=0.3), "default")
    async with running_worker(tmp_path, store=store) as running:
        leader = TestLeader(running.worker.addresses.internal, 1)
        await leader.connect()
        await leader.assign(running.share(1, p=Hold.OWNER))
        gateway = Gateway(running.worker.addresses.ext_proc, "p-epp.ns1.svc:9002")
        picked = {await gateway.pick()}
        for kind, reply in FAULTS.items():
            proxy.canned, proxy.black_hole = reply, reply is None
            picked |= {await gateway.pick() for _ in range(5)}
            await until(lambda k=kind: store.errors()[k] > 1, kind)  # type: ignore[misc]
            picked |= {await gateway.pick() for _ in range(5)}
            assert (await errors(running))[kind] > 1
        proxy.canned, proxy.black_hole = None, False
        await proxy.reset()
        assert picked == {"10.0.0.1:8000"}
        async with asyncio.timeout(10.0):
            direct = RedisStore(RedisSettings(f"redis://127.0.0.1:{proxy.target}", 5.0), "default")
            while not await direct.members():
                await asyncio.sleep(0.02)
            await direct.close()
        assert running.fatal == []
        await gateway.close()
        await leader.close()

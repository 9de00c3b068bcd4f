"""Reading Envoy's admin port: which clusters and hosts are live, which routes are loaded."""

from collections.abc import Mapping
from typing import Any

import aiohttp

from fleet.errors import FleetError

TIMEOUT = aiohttp.ClientTimeout(total=3.0)


class AdminUnavailable(FleetError):
    """Envoy does not answer, or with something else than its admin page."""


def hosts_by_cluster(page: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """`host:port` of each cluster, from `/clusters?format=json`."""
    found = {}
    for cluster in page.get("cluster_statuses", ()):
        hosts = []
        for status in cluster.get("host_statuses", ()):
            address = status.get("address", {}).get("socket_address")
            if address is not None:
                host = address["address"]
                host = f"[{host}]" if ":" in host else host
                hosts.append(f"{host}:{address['port_value']}")
        found[cluster["name"]] = frozenset(hosts)
    return found


class EnvoyAdmin:
    """Envoy's admin port.

    Args:
        address: `host:port`.
    """

    def __init__(self, http: aiohttp.ClientSession, address: str) -> None:
        self._http = http
        self._base = f"http://{address}"

    async def _get(self, path: str) -> Any:
        try:
            async with self._http.get(self._base + path, timeout=TIMEOUT) as answer:
                if answer.status != 200:
                    raise AdminUnavailable(f"Envoy's admin answers {answer.status} to {path}")
                return await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise AdminUnavailable(f"Envoy's admin does not answer: {error}") from error

    async def clusters(self) -> dict[str, frozenset[str]]:
        """Live clusters and their hosts.

        Raises:
            AdminUnavailable: see there.
        """
        return hosts_by_cluster(await self._get("/clusters?format=json"))

    async def routes_version(self) -> str:
        """`version_info` of the routes in use, "" before the first.

        Raises:
            AdminUnavailable: see there.
        """
        page = await self._get("/config_dump?resource=dynamic_route_configs&mask=version_info")
        for entry in page.get("configs", ()):
            if entry.get("version_info"):
                return str(entry["version_info"])
        return ""

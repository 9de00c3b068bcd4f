"""What a gateway's control plane reads: Services and EndpointSlices, joined as Istio joins them.

The endpoints of a Service's port are the ready ones of all its slices, at the slice's port that
bears the NAME of the Service's port.
"""

import asyncio
import contextlib
from collections.abc import Callable

from fleet.errors import KubeError
from fleet.kube.contract import KubeApi, Raw
from fleet.kube.names import SERVICE_NAME_LABEL
from fleet.model import GroupKey
from fleet.model.identity import host_port

_SERVICES = "/api/v1/services"
_SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
_WATCH_SECONDS = 300
_AGAIN_SECONDS = 0.2

Told = Callable[[GroupKey, tuple[str, ...]], None]
_Name = tuple[str, str]


def joined(service: Raw, slices: list[Raw]) -> dict[GroupKey, tuple[str, ...]]:
    """`host:port` of the endpoints behind each port of a Service, sorted."""
    metadata = service["metadata"]
    found = {}
    for port in service["spec"].get("ports") or ():
        group = GroupKey(metadata["namespace"], metadata["name"], port["port"])
        found[group] = tuple(
            sorted(
                host_port(host, number)
                for each in slices
                for number in _numbers(each, port.get("name") or "")
                for endpoint in each.get("endpoints") or ()
                if (endpoint.get("conditions") or {}).get("ready") is not False
                for host in endpoint["addresses"]
            )
        )
    return found


def _numbers(slice_: Raw, name: str) -> list[int]:
    ports = slice_.get("ports") or ()
    return [port["port"] for port in ports if (port.get("name") or "") == name]


class SliceFollower:
    """Tells what changes; `follow` until cancelled.

    Attributes:
        addresses: of each group whose Service exists.
        moves: how often a group went from one set of addresses to another, neither empty.
        most_ports: of one slice, at any time.
    """

    def __init__(self, api: KubeApi, *told: Told) -> None:
        self.addresses: dict[GroupKey, tuple[str, ...]] = {}
        self.moves = 0
        self.most_ports = 0
        self._last: dict[GroupKey, tuple[str, ...]] = {}
        self._api = api
        self._told = told
        self._services: dict[_Name, Raw] = {}
        self._slices: dict[_Name, Raw] = {}
        self._of_service: dict[_Name, dict[_Name, Raw]] = {}

    async def follow(self) -> None:
        """Both kinds, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep(_SERVICES, self._services, self._put_service))
            tasks.create_task(self._keep(_SLICES, self._slices, self._put_slice))

    async def _keep(
        self, path: str, known: dict[_Name, Raw], put: Callable[[_Name, Raw | None], None]
    ) -> None:
        while True:
            with contextlib.suppress(KubeError):
                listed = await self._api.get(path)
                items = {_name(each): each for each in listed["items"]}
                for gone in known.keys() - items.keys():
                    put(gone, None)
                for name, raw in items.items():
                    put(name, raw)
                await self._watch(path, listed["metadata"]["resourceVersion"], put)
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _watch(
        self, path: str, version: str, put: Callable[[_Name, Raw | None], None]
    ) -> None:
        params = {
            "watch": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        async for event in self._api.watch(
            path, params=params, read_timeout_seconds=_WATCH_SECONDS + 10.0
        ):
            raw = event["object"]
            if event["type"] != "ERROR":  # which ends the watch
                put(_name(raw), None if event["type"] == "DELETED" else raw)

    def _put_service(self, name: _Name, raw: Raw | None) -> None:
        if raw is None:
            self._services.pop(name, None)
        else:
            self._services[name] = raw
        self._join(name)

    def _put_slice(self, name: _Name, raw: Raw | None) -> None:
        before = self._slices.pop(name, None)
        if before is not None:
            self._of_service[_service(before)].pop(name, None)
        if raw is not None:
            self._slices[name] = raw
            self._of_service.setdefault(_service(raw), {})[name] = raw
            self.most_ports = max(self.most_ports, len(raw.get("ports") or ()))
        for service in {_service(each) for each in (before, raw) if each is not None}:
            self._join(service)

    def _join(self, name: _Name) -> None:
        service = self._services.get(name)
        slices = list(self._of_service.get(name, {}).values())
        now = joined(service, slices) if service is not None else {}
        gone = [each for each in self.addresses if each[:2] == name and each not in now]
        for group in gone:
            now[group] = ()
        for group, addresses in now.items():
            if self.addresses.get(group) != addresses:
                self._note(group, addresses)
        for group in gone:
            del self.addresses[group]

    def _note(self, group: GroupKey, addresses: tuple[str, ...]) -> None:
        self.addresses[group] = addresses
        if addresses:
            self.moves += self._last.get(group, addresses) != addresses
            self._last[group] = addresses
        for told in self._told:
            told(group, addresses)


def _name(raw: Raw) -> _Name:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def _service(slice_: Raw) -> _Name:
    labels = slice_["metadata"].get("labels") or {}
    return slice_["metadata"]["namespace"], labels.get(SERVICE_NAME_LABEL, "")

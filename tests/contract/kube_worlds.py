"""Worlds behind `KubeSource`: a fake API server in this process, or a real one behind a proxy."""

from typing import Any

from fleet.errors import KubeConflict
from fleet.kube.contract import KubeApi
from fleet.sources.contract import Kind, ObjectKey, Source
from fleet.sources.kubernetes_facts import COLLECTIONS
from tests.fake_api_server import FakeApiServer, Rule, Status
from tests.kube_sources import RunningSource, until
from tests.tcp_proxy import TcpProxy

Raw = dict[str, Any]
Place = tuple[Kind, int, ObjectKey]
"""One object of one of a kind's collections."""


def place_of(raw: Raw) -> Place:
    """Where `KubeSource` sees this object."""
    kind, metadata = Kind(raw["kind"]), raw["metadata"]
    paths = [each.api for each in COLLECTIONS[kind]]
    root = "/apis/" if "/" in raw["apiVersion"] else "/api/"
    key = ObjectKey(metadata["namespace"], metadata["name"])
    return kind, paths.index(f"{root}{raw['apiVersion']}"), key


class _KubeWorld:
    """Settles by resourceVersions: what was written must have been seen."""

    def __init__(self, on: RunningSource) -> None:
        self.source: Source = on.source
        self._on = on
        self._expected: dict[Place, str | None] = {}
        self._away = False

    async def settle(self) -> None:
        await until(self._is_settled, "the source has seen what was written")

    async def pass_time(self, seconds: float) -> None:
        self._on.clock.shift += seconds

    def _is_settled(self) -> bool:
        conditions = self._on.source.conditions()
        if self._away:
            return all(each.failing is not None for each in conditions)
        if not all(each.synced and each.failing is None for each in conditions):
            return False
        return all(
            self._on.source.seen(kind, key, rank=rank) == version
            for (kind, rank, key), version in self._expected.items()
            if self._is_watched(kind, rank, key.namespace)
        )

    def _is_watched(self, kind: Kind, rank: int, namespace: str) -> bool:
        ranks = COLLECTIONS[kind]
        inside = (f"/namespaces/{namespace}/", "/")
        paths = {f"{ranks[rank].api}{part}{ranks[rank].plural}" for part in inside}
        return any(each.path in paths for each in self._on.source.conditions())


class FakeApiWorld(_KubeWorld):
    """A fake API server; it is away when it answers 503 and has cut all watches."""

    validates = False

    def __init__(self, server: FakeApiServer, on: RunningSource) -> None:
        super().__init__(on)
        self._server = server
        self._outage: Rule | None = None

    async def put(self, raw: Raw) -> None:
        stored = self._server.put(raw)
        self._expected[place_of(raw)] = stored["metadata"]["resourceVersion"]

    async def delete(self, raw: Raw) -> None:
        self._server.remove(raw)
        self._expected[place_of(raw)] = None

    async def take_away(self) -> None:
        self._away = True
        self._outage = self._server.fail("", Status(503))
        self._server.cut_watches()

    async def give_back(self) -> None:
        self._away = False
        assert self._outage is not None
        self._outage.remove()


class RealApiWorld(_KubeWorld):
    """A real API server, written to directly and read through a proxy that can be cut."""

    validates = True

    def __init__(self, api: KubeApi, proxy: TcpProxy, on: RunningSource) -> None:
        super().__init__(on)
        self._api = api
        self._proxy = proxy
        self._uids: dict[Place, str] = {}

    async def put(self, raw: Raw) -> None:
        place = place_of(raw)
        collection = _collection_path(place)
        wanted = raw["metadata"].get("uid", "")
        if self._uids.get(place, wanted) != wanted:
            await self.delete(raw)  # a server gives uids itself: a new one needs a new object
        self._uids[place] = wanted
        body = _creatable(raw)
        try:
            stored = await self._api.create(collection, body)
        except KubeConflict:
            changed = {key: value for key, value in body.items() if key != "status"}
            if raw["kind"] == "Pod":
                changed.pop("spec")  # containers cannot be changed
            stored = await self._api.patch(f"{collection}/{raw['metadata']['name']}", changed)
        if "status" in raw:
            path = f"{collection}/{raw['metadata']['name']}/status"
            stored = await self._api.patch(path, {"status": _status(raw["status"])})
        self._expected[place] = stored["metadata"]["resourceVersion"]

    async def delete(self, raw: Raw) -> None:
        place = place_of(raw)
        path = f"{_collection_path(place)}/{raw['metadata']['name']}"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await self._api.delete(path, body=options)
        self._expected[place] = None

    async def clean(self) -> None:
        """Delete what is left."""
        for (kind, rank, key), version in list(self._expected.items()):
            if version is not None:
                api = COLLECTIONS[kind][rank].api.removeprefix("/apis/").removeprefix("/api/")
                metadata = {"namespace": key.namespace, "name": key.name}
                await self.delete({"apiVersion": api, "kind": str(kind), "metadata": metadata})

    async def take_away(self) -> None:
        self._away = True
        await self._proxy.cut()

    async def give_back(self) -> None:
        self._away = False
        await self._proxy.mend()


def _collection_path(place: Place) -> str:
    kind, rank, key = place
    collection = COLLECTIONS[kind][rank]
    return f"{collection.api}/namespaces/{key.namespace}/{collection.plural}"


def _creatable(raw: Raw) -> Raw:
    metadata = {key: value for key, value in raw["metadata"].items() if key != "uid"}
    body = {**raw, "metadata": metadata}
    if raw["kind"] == "Pod":
        body["spec"] = {"containers": [{"name": "server", "image": "model-server"}]}
    return body


def _status(status: Raw) -> Raw:
    """Addresses come twice in a real Pod's status, and both must agree."""
    ip = status.get("podIP")
    return {**status, "podIPs": [{"ip": ip}] if ip else None}

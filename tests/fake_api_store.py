"""What a fake API server stores: objects by kind, one resourceVersion for all, and a history.

Knows Kubernetes' rules that clients rest on (optimistic locking, uids, pages of one snapshot,
selectors, merge patches) and nothing of HTTP.
"""

import base64
import copy
import datetime
import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Raw = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One kind, as discovery tells it. `custom`: items of its lists carry apiVersion and kind."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The path of the collection or, with a name, of one object."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{namespace}" if namespace is not None else ""
        return f"{root}{inside}/{self.plural}" + (f"/{name}" if name is not None else "")


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
SECRETS = Resource("", "v1", "secrets", "Secret")
CORE_EVENTS = Resource("", "v1", "events", "Event")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
POOLS = Resource(
    "inference.networking.k8s.io", "v1", "inferencepools", "InferencePool", custom=True
)
OLD_POOLS = Resource(
    "inference.networking.x-k8s.io", "v1alpha2", "inferencepools", "InferencePool", custom=True
)
OBJECTIVES, OLD_OBJECTIVES, REWRITES, OLD_REWRITES = (
    Resource(group, "v1alpha2", plural, kind, custom=True)
    for plural, kind in (
        ("inferenceobjectives", "InferenceObjective"),
        ("inferencemodelrewrites", "InferenceModelRewrite"),
    )
    for group in ("llm-d.ai", "inference.networking.x-k8s.io")
)
CUSTOM = (POOLS, OLD_POOLS, OBJECTIVES, OLD_OBJECTIVES, REWRITES, OLD_REWRITES)
BUILT_IN = (NAMESPACES, PODS, SERVICES, SECRETS, CORE_EVENTS, EVENTS, LEASES, SLICES)


class Refusal(Exception):
    """The server says no: an HTTP status and the fields of a `Status` body."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    def body(self) -> Raw:
        return status_body(self.code, self.reason, self.message)


def status_body(code: int, reason: str, message: str) -> Raw:
    """A `Status` object of failure."""
    fields = {"status": "Failure", "code": code, "reason": reason, "message": message}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, **fields}


@dataclass(frozen=True)
class Event:
    """One change; `old` is None for a new object, `new` for a deleted one (whose last state, with
    the version of the deletion, is `last`)."""

    version: int
    resource: Resource
    old: Raw | None
    new: Raw | None
    last: Raw

    def seen_through(self, select: "Selection") -> Raw | None:
        """The watch event for one selection: leaving it is a deletion (as on a real server)."""
        was = self.old is not None and select(self.old)
        now = self.new is not None and select(self.new)
        if not was and not now:
            return None
        if not now:
            return {"type": "DELETED", "object": self.last}
        return {"type": "MODIFIED" if was else "ADDED", "object": self.new}


Selection = Callable[[Raw], bool]


def selection(namespace: str | None, labels: str = "", fields: str = "") -> Selection:
    """Which objects a list or watch is about; selectors with =, ==, !=, bare and negated keys."""
    wanted = [*_terms(labels, "labels"), *_terms(fields, "fields")]

    def selected(raw: Raw) -> bool:
        metadata = raw["metadata"]
        if namespace is not None and metadata.get("namespace") != namespace:
            return False
        return all(term(raw) for term in wanted)

    return selected


def _terms(text: str, what: str) -> Iterator[Selection]:
    for term in filter(None, (each.strip() for each in text.split(","))):
        sign = "!=" if "!=" in term else "==" if "==" in term else "="
        key, found, value = term.partition(sign)
        if not found:
            yield _has_key(term.removeprefix("!"), wanted=not term.startswith("!"))
        else:
            yield _equals(key.strip(), value.strip(), what, wanted=sign != "!=")


def _has_key(key: str, *, wanted: bool) -> Selection:
    return lambda raw: (key in (raw["metadata"].get("labels") or {})) is wanted


def _equals(key: str, value: str, what: str, *, wanted: bool) -> Selection:
    def test(raw: Raw) -> bool:
        found: Any = raw["metadata"].get("labels") or {} if what == "labels" else raw
        for part in [key] if what == "labels" else key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return (found == value) is wanted

    return test


def merged(base: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


Key = tuple[str, str]
"""Namespace ("" for cluster-scoped objects) and name."""


class Store:
    """Objects of every installed kind. All methods are synchronous and atomic."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        """A watch from an earlier version than this is told 410."""
        self.resources: set[Resource] = set()
        self.history: list[Event] = []
        self._objects: dict[Resource, dict[Key, Raw]] = {}
        self._pages: dict[str, tuple[int, list[Raw]]] = {}
        self._tokens = itertools.count(1)
        self._listeners: list[Callable[[Event], None]] = []
        self._losing = False

    def listen(self, listener: Callable[[Event], None]) -> None:
        """Call `listener` with each change (unless it is lost)."""
        self._listeners.append(listener)

    def install(self, resource: Resource) -> None:
        """From now on this kind exists."""
        self.resources.add(resource)
        self._objects.setdefault(resource, {})

    def uninstall(self, resource: Resource) -> None:
        """Delete all objects of a kind, then the kind."""
        for namespace, name in list(self._objects[resource]):
            self.delete(resource, namespace, name)
        self.resources.discard(resource)

    def resource_of(self, raw: Raw) -> Resource:
        """The kind of an object with apiVersion and kind."""
        for each in self.resources:
            if (each.api_version, each.kind) == (raw["apiVersion"], raw["kind"]):
                return each
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def find(self, resource: Resource, namespace: str, name: str) -> Raw:
        """One object."""
        try:
            return self._objects[resource][namespace, name]
        except KeyError:
            raise Refusal(404, "NotFound", f'{resource.plural} "{name}" not found') from None

    def all(self, resource: Resource, select: Selection) -> list[Raw]:
        """All selected objects, by namespace and name."""
        objects = self._objects[resource]
        return [objects[key] for key in sorted(objects) if select(objects[key])]

    def page(self, items: list[Raw], limit: int) -> tuple[list[Raw], int, str, int]:
        """The first page of a list: items, version, token for more ("") and how many remain."""
        return self._cut(items, self.version, limit)

    def next_page(self, token: str, limit: int) -> tuple[list[Raw], int, str, int]:
        """A further page of the same snapshot; 410 once history has expired."""
        if token not in self._pages:
            raise Refusal(410, "Expired", "The provided continue parameter is too old")
        version, items = self._pages[token]
        return self._cut(items, version, limit)

    def _cut(self, items: list[Raw], version: int, limit: int) -> tuple[list[Raw], int, str, int]:
        if not limit or len(items) <= limit:
            return items, version, "", 0
        token = base64.urlsafe_b64encode(f"page-{next(self._tokens)}".encode()).decode()
        self._pages[token] = (version, items[limit:])
        return items[:limit], version, token, len(items) - limit

    def create(self, resource: Resource, namespace: str, body: Raw) -> Raw:
        """POST."""
        raw = copy.deepcopy(body)
        metadata = raw.setdefault("metadata", {})
        if not metadata.get("name"):
            if not metadata.get("generateName"):
                raise Refusal(422, "Invalid", "metadata.name: Required value: name is required")
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if resource.namespaced:
            metadata["namespace"] = namespace or metadata.get("namespace") or "default"
        key = (metadata.get("namespace", ""), metadata["name"])
        if key in self._objects[resource]:
            message = f'{resource.plural} "{metadata["name"]}" already exists'
            raise Refusal(409, "AlreadyExists", message)
        metadata["uid"] = metadata.get("uid") or str(uuid.uuid4())
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata.setdefault("creationTimestamp", now)
        metadata["generation"] = 1
        return self._write(resource, key, None, raw)

    def replace(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """PUT: 409 unless a resourceVersion in the body is the latest."""
        old = self.find(resource, namespace, name)
        raw = copy.deepcopy(body)
        metadata = raw.setdefault("metadata", {})
        self._check(resource, old, metadata)
        for field in ("uid", "creationTimestamp", "name", "namespace", "generation"):
            if field in old["metadata"]:
                metadata[field] = old["metadata"][field]
        return self._update(resource, (namespace, name), old, raw)

    def patch(self, resource: Resource, namespace: str, name: str, body: Raw) -> Raw:
        """Merge patch: 409 unless a resourceVersion in it is the latest."""
        old = self.find(resource, namespace, name)
        self._check(resource, old, body.get("metadata") or {})
        raw: Raw = merged(copy.deepcopy(old), body)
        for field in ("uid", "creationTimestamp", "name", "namespace"):
            if field in old["metadata"]:
                raw["metadata"][field] = old["metadata"][field]
        return self._update(resource, (namespace, name), old, raw)

    def delete(
        self, resource: Resource, namespace: str, name: str, preconditions: Raw | None = None
    ) -> Raw:
        """DELETE; preconditions are `uid` and `resourceVersion`."""
        old = self.find(resource, namespace, name)
        self._check(resource, old, preconditions or {})
        return self._write(resource, (namespace, name), old, None)

    def put(self, raw: Raw) -> Raw:
        """Create or replace, as tests do; another uid in `raw` makes it another object."""
        resource = self.resource_of(raw)
        metadata = raw["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else ""
        old = self._objects[resource].get((namespace, metadata["name"]))
        if old is None:
            return self.create(resource, namespace, raw)
        if metadata.get("uid") not in (None, old["metadata"]["uid"]):
            self.delete(resource, namespace, metadata["name"])
            return self.create(resource, namespace, raw)
        body = copy.deepcopy(raw)
        body["metadata"].pop("resourceVersion", None)
        return self.replace(resource, namespace, metadata["name"], body)

    def remove(self, raw: Raw) -> Raw:
        """Delete the object that `raw` names."""
        resource = self.resource_of(raw)
        namespace = raw["metadata"].get("namespace", "default") if resource.namespaced else ""
        return self.delete(resource, namespace, raw["metadata"]["name"])

    @contextmanager
    def losing_events(self) -> Iterator[None]:
        """Changes made inside reach no watch, now or later: only a list shows them."""
        self._losing = True
        try:
            yield
        finally:
            self._losing = False

    def expire_history(self) -> None:
        """Forget every event and snapshot: older watches and pages are told 410."""
        self.version += 1
        self.oldest = self.version
        self.history.clear()
        self._pages.clear()

    def _check(self, resource: Resource, old: Raw, wanted: Raw) -> None:
        for field in ("resourceVersion", "uid"):
            if wanted.get(field) not in (None, "", old["metadata"][field]):
                name = old["metadata"]["name"]
                message = f'Operation cannot be fulfilled on {resource.plural} "{name}": {field}'
                raise Refusal(409, "Conflict", message)

    def _update(self, resource: Resource, key: Key, old: Raw, raw: Raw) -> Raw:
        raw["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if raw == old:
            return old  # nothing changed: no new version, no event
        if raw.get("spec") != old.get("spec"):
            raw["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        return self._write(resource, key, old, raw)

    def _write(self, resource: Resource, key: Key, old: Raw | None, new: Raw | None) -> Raw:
        self.version += 1
        last = copy.deepcopy(old) if new is None and old is not None else new
        assert last is not None
        last["apiVersion"], last["kind"] = resource.api_version, resource.kind
        last["metadata"]["resourceVersion"] = str(self.version)
        if new is None:
            del self._objects[resource][key]
        else:
            self._objects[resource][key] = new
        if not self._losing:
            event = Event(self.version, resource, old, new, last)
            self.history.append(event)
            for listener in self._listeners:
                listener(event)
        return last

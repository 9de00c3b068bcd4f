"""What a fake API server answers to everything but watches: paths, verbs, discovery. No HTTP."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fake_api_faults import is_watch
from tests.fake_api_store import Raw, Refusal, Resource, Store
from tests.fake_api_store import selection as select_by

_OBJECT = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>status))?)?"
)
_GROUP = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)")


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    method: str
    path: str
    query: dict[str, str]
    body: Any
    token: str

    @property
    def watch(self) -> bool:
        return is_watch(self.query)


@dataclass(frozen=True)
class Target:
    """What a path names."""

    resource: Resource
    namespace: str | None
    name: str | None
    status: bool


class Answers:
    """Answers requests from a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def target(self, path: str) -> Target:
        """What a path names; Refusal 404 if there is no such kind."""
        found = _OBJECT.fullmatch(path)
        parts = found.groupdict() if found else {}
        namespace, name = parts.get("namespace"), parts.get("name")
        resources = self._store.resources
        if found is None and (own := re.fullmatch(r"/api/v1/namespaces/([^/]+)", path)):
            parts = {"version": "v1", "plural": "namespaces"}
            name = own[1]
        for each in resources:
            if (each.group, each.version, each.plural) == (
                parts.get("group") or "",
                parts.get("version"),
                parts.get("plural"),
            ):
                return Target(each, namespace, name, parts.get("sub") is not None)
        raise Refusal(404, "NotFound", "the server could not find the requested resource")

    def answer(self, seen: Seen) -> tuple[Raw, int]:
        """Body and HTTP status of any request but a watch."""
        if seen.method == "GET" and (found := self._discovery(seen.path)) is not None:
            return found, 200
        target = self.target(seen.path)
        namespace = target.namespace or ""
        code = 200
        match seen.method:
            case "GET" if target.name is None:
                answer = self._list(target, seen.query)
            case "GET":
                answer = self._store.find(target.resource, namespace, target.name or "")
            case "POST" if target.name is None:
                answer, code = self._store.create(target.resource, namespace, seen.body), 201
            case "PUT" if target.name is not None:
                body = self._with_status(target, seen.body) if target.status else seen.body
                answer = self._store.replace(target.resource, namespace, target.name, body)
            case "PATCH" if target.name is not None:
                answer = self._patch(target, namespace, target.name, seen)
            case "DELETE" if target.name is not None:
                wanted = (seen.body or {}).get("preconditions")
                answer = self._store.delete(target.resource, namespace, target.name, wanted)
            case _:
                raise Refusal(405, "MethodNotAllowed", f"{seen.method} is not supported here")
        return answer, code

    def _with_status(self, target: Target, body: Raw) -> Raw:
        old = self._store.find(target.resource, target.namespace or "", target.name or "")
        metadata = {**old["metadata"]}
        metadata.pop("resourceVersion")
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted:
            metadata["resourceVersion"] = wanted
        return {**old, "metadata": metadata, "status": body.get("status")}

    def _patch(self, target: Target, namespace: str, name: str, seen: Seen) -> Raw:
        body: Raw = seen.body
        if target.status:
            body = {key: body[key] for key in ("status", "metadata") if key in body}
        try:
            return self._store.patch(target.resource, namespace, name, body)
        except Refusal as refusal:
            if refusal.code != 404 or "fieldManager" not in seen.query:
                raise
        body = {**body, "metadata": {**body.get("metadata", {}), "name": name}}
        return self._store.create(target.resource, namespace, body)

    def _list(self, target: Target, query: dict[str, str]) -> Raw:
        limit = int(query.get("limit") or 0)
        if query.get("continue"):
            items, version, token, left = self._store.next_page(query["continue"], limit)
        else:
            items, version, token, left = self._store.page(self.selected(target, query), limit)
        metadata: Raw = {"resourceVersion": str(version)}
        if token:
            metadata |= {"continue": token, "remainingItemCount": left}
        resource = target.resource
        if not resource.custom:
            left_out = ("apiVersion", "kind")
            items = [{k: v for k, v in each.items() if k not in left_out} for each in items]
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
        return {**head, "metadata": metadata, "items": items}

    def selected(self, target: Target, query: dict[str, str]) -> list[Raw]:
        """The objects that a list or watch is about, as of now."""
        return self._store.all(target.resource, self.selection(target, query))

    def selection(self, target: Target, query: dict[str, str]) -> Callable[[Raw], bool]:
        """Which objects a list or watch is about."""
        return select_by(
            target.namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
        )

    def _discovery(self, path: str) -> Raw | None:
        resources = sorted(self._store.resources, key=lambda each: each.plural)
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
        if path == "/apis":
            groups: dict[str, list[Raw]] = {}
            for each in resources:
                version = {"groupVersion": each.api_version, "version": each.version}
                if each.group and version not in groups.setdefault(each.group, []):
                    groups[each.group].append(version)
            named = [
                {"name": name, "versions": versions, "preferredVersion": versions[0]}
                for name, versions in groups.items()
            ]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        found = _GROUP.fullmatch(path)
        if found is None:
            return None
        group, number = found["group"] or "", found["version"]
        kinds = [each for each in resources if (each.group, each.version) == (group, number)]
        if not kinds:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        listed = [
            {"name": each.plural, "kind": each.kind, "namespaced": each.namespaced}
            for each in kinds
        ]
        head = {"kind": "APIResourceList", "groupVersion": kinds[0].api_version}
        return {**head, "resources": listed}

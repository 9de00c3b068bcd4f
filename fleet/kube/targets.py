"""What a request asks for, in the words of RBAC: so that an error says which rule to mend.

Pure: reads nothing but the method and the path. The forms of a path are those of
https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
"""

from dataclasses import dataclass
from typing import Final

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_OF_NAMESPACE_ITSELF: Final = frozenset({"status", "finalize"})


@dataclass(frozen=True, slots=True)
class Target:
    """One request as the authorizer sees it.

    Attributes:
        verb: get, list, watch, create, update, patch, delete or deletecollection.
        resource: plural, with its subresource (`pods/status`); "" for a path that is no resource.
        group: the API group; "" is the core group.
        namespace: "" for what is cluster-wide.
        name: "" for a collection.
        path: as requested, without parameters.
    """

    verb: str
    resource: str
    group: str
    namespace: str
    name: str
    path: str

    def __str__(self) -> str:
        """`list pods in namespace team-a`."""
        if not self.resource:
            return f"{self.verb} {self.path}"
        kind = f"{self.resource}.{self.group}" if self.group else self.resource
        words = f"{self.verb} {kind}"
        if self.name:
            words += f" {self.name}"
        return f"{words} in namespace {self.namespace}" if self.namespace else words

    def rule(self) -> str:
        """The RBAC rule that allows it, for a person who edits a Role."""
        if not self.resource:
            return f'verb "{self.verb}" on nonResourceURL "{self.path}"'
        where = f'namespace "{self.namespace}"' if self.namespace else "the whole cluster"
        what = f'resource "{self.resource}" of API group "{self.group}"'
        return f'verb "{self.verb}" on {what} in {where}'


def target(method: str, path: str, *, watching: bool = False) -> Target:
    """Name what `method` on `path` needs."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"] and len(parts) > 2:
        return _resource(method, path, "", parts[2:], watching=watching)
    if parts[:1] == ["apis"] and len(parts) > 3:
        return _resource(method, path, parts[1], parts[3:], watching=watching)
    return Target(method.lower(), "", "", "", "", path)


def _resource(method: str, path: str, group: str, parts: list[str], *, watching: bool) -> Target:
    namespace = ""
    itself = len(parts) == 3 and parts[2] in _OF_NAMESPACE_ITSELF and not group
    if parts[0] == "namespaces" and len(parts) > 2 and not itself:
        namespace, parts = parts[1], parts[2:]
    name = parts[1] if len(parts) > 1 else ""
    resource = "/".join([parts[0], *parts[2:]])
    return Target(_verb(method, name, watching=watching), resource, group, namespace, name, path)


def _verb(method: str, name: str, *, watching: bool) -> str:
    if method == "GET":
        return "watch" if watching else "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())

"""What is watched for each kind of fact, and what is kept of each object."""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, cast

import msgspec

from fleet.errors import ManifestError
from fleet.kube.contract import Raw
from fleet.kube.listwatch_events import Collection, trimmed
from fleet.sources.contract import Kind, Object
from fleet.sources.identify import APIS, identify
from fleet.sources.parse import parse

_PLURALS = {
    Kind.POOL: "inferencepools",
    Kind.POD: "pods",
    Kind.SERVICE: "services",
    Kind.OBJECTIVE: "inferenceobjectives",
    Kind.REWRITE: "inferencemodelrewrites",
}

COLLECTIONS: Mapping[Kind, tuple[Collection, ...]] = {
    kind: tuple(
        Collection(f"/{'apis' if '/' in api else 'api'}/{api}", _PLURALS[kind]) for api in apis
    )
    for kind, apis in APIS.items()
}
"""By rank: the first one's reading of a name wins."""

POD_ANNOTATIONS = ("llm-d.ai/", "inference.networking.k8s.io/", "epp-fleet.dev/")
"""Only these domains' are kept: others write kilobytes into the annotations of every pod."""


class _Metadata(TypedDict, total=False):
    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    labels: Any
    annotations: Any


class _PodStatus(TypedDict, total=False):
    phase: Any
    podIP: Any
    conditions: Any


class _Pod(TypedDict, total=False):
    metadata: _Metadata
    status: _PodStatus


class _Other(TypedDict, total=False):
    metadata: _Metadata
    spec: Any


def decoder(kind: Kind) -> Callable[[msgspec.Raw], Raw]:
    """Decodes of an object in a list only what is kept: of a pod 5 us instead of 60."""
    shape: Any = _Pod if kind is Kind.POD else _Other
    return cast(Callable[[msgspec.Raw], Raw], msgspec.json.Decoder(shape).decode)


def keeper(kind: Kind, collection: Collection) -> Callable[[Raw], Object]:
    """The fact to keep of one raw object of `collection`; raises ManifestError.

    Items of a list have no apiVersion and kind of their own, so they are filled in.
    """
    head = {"apiVersion": collection.api.removeprefix("/apis/").removeprefix("/api/"), "kind": kind}

    def keep(raw: Raw) -> Object:
        filled = trimmed({**raw, **head})
        if kind is Kind.POD:
            filled = _without_foreign_annotations(filled)
        identity = identify(filled)
        if identity is None:
            raise ManifestError(f"{kind}: not of {head['apiVersion']}; report this")
        return parse(identity, cast(Mapping[object, object], filled), keep_foreign_pickers=True)

    return keep


def _without_foreign_annotations(raw: Raw) -> Raw:
    metadata = raw.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict):
        return raw
    kept = {
        key: value
        for key, value in annotations.items()
        if isinstance(key, str) and key.startswith(POD_ANNOTATIONS)
    }
    return {**raw, "metadata": {**metadata, "annotations": kept}}

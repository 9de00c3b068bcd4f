"""Which object a manifest is, before the rest of it is looked at: pure."""

import difflib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.sources.contract import Kind, ObjectKey
from fleet.sources.fields import Field, is_dns_label, is_dns_subdomain, shown

POOL_GROUP = "inference.networking.k8s.io"
OLD_POOL_GROUP = "inference.networking.x-k8s.io"
POOL_API = f"{POOL_GROUP}/v1"
OLD_POOL_API = f"{OLD_POOL_GROUP}/v1alpha2"
CORE_API = "v1"
OBJECTIVE_API = "llm-d.ai/v1alpha2"
OLD_OBJECTIVE_API = f"{OLD_POOL_GROUP}/v1alpha2"

APIS: Mapping[Kind, tuple[str, ...]] = {
    Kind.POOL: (POOL_API, OLD_POOL_API),
    Kind.POD: (CORE_API,),
    Kind.SERVICE: (CORE_API,),
    Kind.OBJECTIVE: (OBJECTIVE_API, OLD_OBJECTIVE_API),
    Kind.REWRITE: (OBJECTIVE_API, OLD_OBJECTIVE_API),
}
"""Where each kind is read, by rank: the first one's reading of a name wins."""

_KINDS: Mapping[str, Kind] = {kind.value: kind for kind in Kind}

OUR_GROUPS = (POOL_GROUP, OLD_POOL_GROUP, "llm-d.ai")
"""Groups in which an unknown kind is a slip of the pen."""
OUR_KINDS = (Kind.POOL, Kind.OBJECTIVE, Kind.REWRITE)
"""Kinds of these groups that are read."""
OTHER_KINDS = ("InferenceModel", "InferencePoolImport")
"""Kinds of these groups that nobody here reads; they are left alone."""

DEFAULT_NAMESPACE = "default"
_UID_SPACE = uuid.UUID("7b0c1f5e-3a52-5d6c-9f0e-2f4f6d1f6b11")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which object a manifest is, before the rest of it is looked at.

    Attributes:
        rank: 0 for the API version that wins when one name occurs under two, 1 for the other.
    """

    kind: Kind
    key: ObjectKey
    rank: int

    def __str__(self) -> str:
        return f"{self.kind} {self.key.namespace}/{self.key.name}"


def derived_uid(kind: str, namespace: str, name: str) -> str:
    """The uid of an object whose manifest has none: the same for the same kind and name, always.

    So a folder without uids cannot tell a pool from its successor of the same name; give
    `metadata.uid` where that matters.
    """
    return str(uuid.uuid5(_UID_SPACE, f"{kind}/{namespace}/{name}"))


def uid_of(kind: Kind, key: ObjectKey, top: Field) -> str:
    """The uid that a manifest gives, else a derived one."""
    uid = top.get("metadata").get("uid").text("")
    return uid or derived_uid(kind, key.namespace, key.name)


def _kind_of(kind: str, api: str, subject: str) -> tuple[Kind, int] | None:
    known = _KINDS.get(kind)
    group = api.partition("/")[0]
    if known is None:
        if group in OUR_GROUPS and kind not in OTHER_KINDS:
            close = difflib.get_close_matches(kind, (*OUR_KINDS, *OTHER_KINDS), n=1)
            raise Field(subject, "kind", kind).fault(
                f"{shown(kind)} is unknown", f"use {close[0] if close else Kind.POOL}"
            )
        return None
    apis = APIS[known]
    if api in apis:
        return known, apis.index(api)
    if known in OUR_KINDS and group in OUR_GROUPS:
        raise Field(subject, "apiVersion", api).fault(
            f"{shown(api)} is unknown", f"use {apis[0]} (or the older {apis[1]})"
        )
    return None


def identify(raw: object) -> Identity | None:
    """Which object `raw` is; None for a kind that is of no interest here.

    Raises:
        ManifestError: it is no Kubernetes object, has no usable name, or is of an unknown
            version of a kind that is read.
    """
    top = Field("manifest", "", raw)
    if not isinstance(raw, Mapping):
        raise top.fault(f"{shown(raw)} is no object", "give apiVersion, kind and metadata")
    api, kind = top.get("apiVersion").text(), top.get("kind").text()
    metadata = top.get("metadata")
    subject = _subject(kind, metadata)
    known = _kind_of(kind, api, subject)
    if known is None:
        return None
    return Identity(known[0], _key_of(Field(subject, "metadata", metadata.value)), known[1])


def _subject(kind: str, metadata: Field) -> str:
    values = metadata.value if isinstance(metadata.value, Mapping) else {}
    name = values.get("name")
    namespace = values.get("namespace") or DEFAULT_NAMESPACE
    shown_name = f"{namespace}/{name}"[:320] if isinstance(name, str) else "without a name"
    return f"{kind[:64]} {shown_name}"


def _key_of(metadata: Field) -> ObjectKey:
    namespace = metadata.get("namespace")
    if not is_dns_label(namespace.text(DEFAULT_NAMESPACE)):
        raise namespace.fault(
            f"{shown(namespace.value)} is no DNS label",
            "use at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit",
        )
    name = metadata.get("name")
    if not is_dns_subdomain(name.text()):
        raise name.fault(
            f"{shown(name.value)} is no DNS subdomain",
            "use at most 253 of a-z, 0-9, '-' and '.', each part beginning and ending with a "
            "letter or digit",
        )
    return ObjectKey(namespace.text(DEFAULT_NAMESPACE), name.text())

"""Kubernetes manifests to facts: pure, and strict about what placing and picking rest on.

Unknown fields are ignored, as an API server prunes them. Everything else that is wrong raises
`ManifestError`, one message per defect: object, field path, fault, remedy. What is wrong with a
pod's status is no error but makes the pod not ready: a stale "ready" would be worse.

Readings of one pool under both API groups: v1 outranks v1alpha2 (`Identity.rank`).
"""

import difflib
import ipaddress
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from fleet.errors import ManifestError
from fleet.model import FailureMode, GroupKey, Pod, Pool, PoolRef, Service
from fleet.model.pools import DEFAULT_PICKER_PORT
from fleet.sources.contract import Kind, Object, ObjectKey
from fleet.sources.fields import Field, is_dns_label, is_dns_subdomain, is_label_value, shown

POOL_GROUP = "inference.networking.k8s.io"
OLD_POOL_GROUP = "inference.networking.x-k8s.io"
POOL_API = f"{POOL_GROUP}/v1"
OLD_POOL_API = f"{OLD_POOL_GROUP}/v1alpha2"
CORE_API = "v1"
OUR_GROUPS = (POOL_GROUP, OLD_POOL_GROUP, "llm-d.ai")
"""Groups in which an unknown kind is a slip of the pen."""
OTHER_KINDS = (
    "InferenceModel",
    "InferenceModelRewrite",
    "InferenceObjective",
    "InferencePoolImport",
)
"""Kinds of these groups that are no pools; they are left alone."""

MAX_TARGET_PORTS = 8
MAX_SELECTOR_LABELS = 64
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


def _kind_of(kind: str, api: str, subject: str) -> tuple[Kind, int] | None:
    if kind == Kind.POOL:
        if api in (POOL_API, OLD_POOL_API):
            return Kind.POOL, int(api == OLD_POOL_API)
        if api.partition("/")[0] in (POOL_GROUP, OLD_POOL_GROUP):
            raise Field(subject, "apiVersion", api).fault(
                f"{shown(api)} is unknown", f"use {POOL_API} (or the older {OLD_POOL_API})"
            )
    elif api == CORE_API and kind in (Kind.POD, Kind.SERVICE):
        return Kind(kind), 0
    elif api.partition("/")[0] in OUR_GROUPS and kind not in OTHER_KINDS:
        close = difflib.get_close_matches(kind, (Kind.POOL.value, *OTHER_KINDS), n=1)
        raise Field(subject, "kind", kind).fault(
            f"{shown(kind)} is unknown", f"use {close[0] if close else Kind.POOL.value}"
        )
    return None


def identify(raw: object) -> Identity | None:
    """Which object `raw` is; None for a kind that is of no interest here.

    Raises:
        ManifestError: it is no Kubernetes object, has no usable name, or is of a version of
            InferencePool that is not known.
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


def parse(
    identity: Identity, raw: Mapping[object, object], *, keep_foreign_pickers: bool = False
) -> Object:
    """The fact that `raw` states about the object `identify` found it to be.

    Args:
        keep_foreign_pickers: a pool whose endpointPickerRef cannot be served is a pool nevertheless
            (`Pool.picker_fault`): on a cluster it is somebody's, in a folder of ours a mistake.

    Raises:
        ManifestError: see the module.
    """
    top = Field(str(identity), "", raw)
    match identity.kind:
        case Kind.POOL if identity.rank == 0:
            return parse_pool(identity.key, top, keep_foreign_pickers=keep_foreign_pickers)
        case Kind.POOL:
            return parse_old_pool(identity.key, top, keep_foreign_pickers=keep_foreign_pickers)
        case Kind.POD:
            return parse_pod(identity.key, top)
        case Kind.SERVICE:
            return parse_service(identity.key, top)


def _uid(kind: Kind, key: ObjectKey, top: Field) -> str:
    uid = top.get("metadata").get("uid").text("")
    return uid or derived_uid(kind, key.namespace, key.name)


def _spec(top: Field) -> Field:
    spec = top.get("spec")
    if spec.missing:
        raise spec.fault("missing", "it is required")
    return spec


def _required(field: Field, remedy: str) -> Field:
    if field.missing:
        raise field.fault("missing", remedy)
    return field


def _selector(field: Field) -> dict[str, str]:
    labels = field.texts()
    if len(labels) > MAX_SELECTOR_LABELS:
        raise field.fault(f"{len(labels)} labels", f"give at most {MAX_SELECTOR_LABELS}")
    for key, value in labels.items():
        if not key or not is_label_value(value):
            raise field.fault(
                f"{shown(f'{key}: {value}')} is no label",
                "use at most 63 letters, digits, '-', '_' and '.'",
            )
    return labels


def parse_pool(key: ObjectKey, top: Field, *, keep_foreign_pickers: bool = False) -> Pool:
    """An InferencePool of inference.networking.k8s.io/v1.

    An empty selector selects nothing. A selector that says something else than `matchLabels` is
    refused: ignoring it would select more pods than were meant.
    """
    spec = _spec(top)
    selector = _required(spec.get("selector"), "give `matchLabels`")
    extra = [name for name in selector.mapping() if name != "matchLabels"]
    if extra:
        raise selector.fault(
            f"{shown(extra[0])} is unknown here", "put the labels under `matchLabels`"
        )
    ports = _target_ports(spec.get("targetPorts"))
    picker = _picker(key.namespace, spec.get("endpointPickerRef"), keep=keep_foreign_pickers)
    return Pool(
        ref=PoolRef(*key),
        uid=_uid(Kind.POOL, key, top),
        selector=_selector(selector.get("matchLabels")),
        target_ports=ports,
        group=picker.group,
        failure_mode=picker.mode,
        app_protocol=spec.get("appProtocol").choice(("http", "kubernetes.io/h2c"), "http"),
        annotations=top.get("metadata").get("annotations").texts(),
        labels=top.get("metadata").get("labels").texts(),
        picker_fault=picker.fault,
    )


def parse_old_pool(key: ObjectKey, top: Field, *, keep_foreign_pickers: bool = False) -> Pool:
    """An InferencePool of inference.networking.x-k8s.io/v1alpha2."""
    spec = _spec(top)
    picker = _picker(key.namespace, spec.get("extensionRef"), keep=keep_foreign_pickers)
    return Pool(
        ref=PoolRef(*key),
        uid=_uid(Kind.POOL, key, top),
        selector=_selector(_required(spec.get("selector"), "give the labels of its pods")),
        target_ports=(spec.get("targetPortNumber").port(),),
        group=picker.group,
        failure_mode=picker.mode,
        annotations=top.get("metadata").get("annotations").texts(),
        labels=top.get("metadata").get("labels").texts(),
        api_version=OLD_POOL_API,
        picker_fault=picker.fault,
    )


def _target_ports(field: Field) -> tuple[int, ...]:
    ports: list[int] = []
    for item in field.items():
        number = item.get("number")
        if number.port() in ports:
            raise number.fault(f"{number.port()} occurs twice", "give each port once")
        ports.append(number.port())
    if not ports:
        raise field.fault("no port", f"give 1 to {MAX_TARGET_PORTS} items `- number: 8000`")
    if len(ports) > MAX_TARGET_PORTS:
        raise field.fault(f"{len(ports)} ports", f"give at most {MAX_TARGET_PORTS}")
    return tuple(ports)


@dataclass(frozen=True, slots=True)
class _Picker:
    """What a pool says of its endpoint picker."""

    group: GroupKey | None = None
    mode: FailureMode = FailureMode.CLOSE
    fault: str = ""


def _picker(namespace: str, ref: Field, *, keep: bool) -> _Picker:
    """Read an endpointPickerRef or extensionRef; `keep` turns what is wrong with it into a fact."""
    if ref.missing:
        return _Picker()
    mode = _failure_mode(ref)
    try:
        if ref.path == "spec.extensionRef":
            return _Picker(_group(namespace, ref, ref.get("portNumber"), DEFAULT_PICKER_PORT), mode)
        return _Picker(_group(namespace, ref, ref.get("port").get("number")), mode)
    except ManifestError as error:
        if not keep:
            raise
        return _Picker(None, mode, str(error).removeprefix(f"{ref.subject}: "))


def _group(namespace: str, ref: Field, port: Field, default: int | None = None) -> GroupKey:
    for name, meant in (("group", ""), ("kind", "Service")):
        field = ref.get(name)
        if field.text(meant) != meant:
            raise field.fault(f"{shown(field.value)} cannot be served", "refer to a core Service")
    service = ref.get("name")
    if not is_dns_label(service.text()):
        raise service.fault(
            f"{shown(service.value)} is no Service's name", "use at most 63 of a-z, 0-9 and '-'"
        )
    return GroupKey(namespace, service.text(), port.port(default))


def _failure_mode(ref: Field) -> FailureMode:
    modes = (FailureMode.OPEN.value, FailureMode.CLOSE.value)
    return FailureMode(ref.get("failureMode").choice(modes, FailureMode.CLOSE.value))


def parse_pod(key: ObjectKey, top: Field) -> Pod:
    """A Pod; see `fleet.model.Pod` for what makes it ready."""
    metadata, status = top.get("metadata"), top.get("status")
    ip = _ip(status)
    ready = (
        bool(ip)
        and metadata.get("deletionTimestamp").missing
        and status.get("phase").value not in ("Failed", "Succeeded")
        and _is_ready(status)
    )
    return Pod(
        namespace=key.namespace,
        name=key.name,
        uid=_uid(Kind.POD, key, top),
        labels=metadata.get("labels").texts(),
        ip=ip,
        ready=ready,
        annotations=metadata.get("annotations").texts(),
    )


def _ip(status: Field) -> str:
    if not isinstance(status.value, Mapping):
        return ""
    value = status.value.get("podIP")
    if not isinstance(value, str) or "%" in value:
        return ""
    try:
        return str(ipaddress.ip_address(value))
    except ValueError:
        return ""


def _is_ready(status: Field) -> bool:
    conditions = status.get("conditions").value
    if not isinstance(conditions, list):
        return False
    return any(
        isinstance(each, Mapping) and each.get("type") == "Ready" and each.get("status") == "True"
        for each in conditions
    )


def parse_service(key: ObjectKey, top: Field) -> Service:
    """A Service, trimmed."""
    metadata, spec = top.get("metadata"), top.get("spec")
    if not is_dns_label(key.name):
        raise metadata.get("name").fault(
            f"{shown(key.name)} is no DNS label", "use at most 63 of a-z, 0-9 and '-'"
        )
    ports = {
        port.get("port").port(): port.get("name").text("") for port in spec.get("ports").items()
    }
    return Service(
        namespace=key.namespace,
        name=key.name,
        uid=_uid(Kind.SERVICE, key, top),
        selector=spec.get("selector").texts(),
        type=spec.get("type").text("ClusterIP"),
        ports=ports,
        labels=metadata.get("labels").texts(),
        annotations=metadata.get("annotations").texts(),
        owners=tuple(
            owner.get("uid").text("") for owner in metadata.get("ownerReferences").items()
        ),
    )


def expand(raw: object) -> list[object]:
    """The objects of a document: the items of a List (one level), else the document itself.

    Items of a typed list (`PodList`) take kind and apiVersion from it where they have none, as an
    API server leaves them out. An empty document holds nothing.

    Raises:
        ManifestError: `items` is no list.
    """
    if raw is None:
        return []
    kind = raw.get("kind") if isinstance(raw, Mapping) else None
    if not (isinstance(raw, Mapping) and isinstance(kind, str) and kind.endswith("List")):
        return [raw]
    if "items" not in raw:
        raise ManifestError(f"{kind[:64]}: items: missing; give a list, empty if there is none")
    items = [item.value for item in Field(kind[:64], "items", raw["items"]).items()]
    if kind == "List":
        return items
    filled = {"apiVersion": raw.get("apiVersion"), "kind": kind.removesuffix("List")}
    return [{**filled, **item} if isinstance(item, Mapping) else item for item in items]

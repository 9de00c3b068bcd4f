"""Kubernetes manifests to facts: pure, and strict about what placing and picking rest on.

Unknown fields are ignored, as an API server prunes them. Everything else that is wrong raises
`ManifestError`, one message per defect: object, field path, fault, remedy. What is wrong with a
pod's status is no error but makes the pod not ready: a stale "ready" would be worse.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from fleet.errors import ManifestError
from fleet.model import FailureMode, GroupKey, Pod, Pool, PoolRef, Service
from fleet.model.pools import ACTIVE_PORTS, DEFAULT_PICKER_PORT
from fleet.sources.contract import Kind, Object, ObjectKey
from fleet.sources.fields import MAX_PORT, Field, is_dns_label, is_label_value, shown, spec_of
from fleet.sources.identify import OLD_POOL_API, Identity, uid_of
from fleet.sources.parse_objectives import parse_objective, parse_rewrite

MAX_TARGET_PORTS = 8
MAX_SELECTOR_LABELS = 64
MAX_TIME_LENGTH = 40
MAX_ACTIVE_PORTS = 64
"""Ports of a pod's annotation; a pool has eight. What follows is one text that is no port."""


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
        case Kind.OBJECTIVE:
            return parse_objective(identity.key, top)
        case Kind.REWRITE:
            return parse_rewrite(identity.key, top)


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
    spec = spec_of(top)
    selector = spec.get("selector").required("give `matchLabels`")
    extra = [name for name in selector.mapping() if name != "matchLabels"]
    if extra:
        raise selector.fault(
            f"{shown(extra[0])} is unknown here", "put the labels under `matchLabels`"
        )
    ports = _target_ports(spec.get("targetPorts"))
    picker = _picker(key.namespace, spec.get("endpointPickerRef"), keep=keep_foreign_pickers)
    return Pool(
        ref=PoolRef(*key),
        uid=uid_of(Kind.POOL, key, top),
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
    spec = spec_of(top)
    picker = _picker(key.namespace, spec.get("extensionRef"), keep=keep_foreign_pickers)
    return Pool(
        ref=PoolRef(*key),
        uid=uid_of(Kind.POOL, key, top),
        selector=_selector(spec.get("selector").required("give the labels of its pods")),
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
    """A Pod; see `fleet.model.Pod` for what makes it ready.

    Ports that its annotation names and that are none are left out, and a fault of the pod; an
    annotation with nothing else says nothing.
    """
    metadata, status = top.get("metadata"), top.get("status")
    annotations = metadata.get("annotations").texts()
    ports, fault = _active_ports(metadata.get("annotations"), annotations)
    ip = _ip(status)
    ready_condition = _ready_condition(status)
    ready = (
        bool(ip)
        and metadata.get("deletionTimestamp").missing
        and status.get("phase").value not in ("Failed", "Succeeded")
        and ready_condition is not None
    )
    return Pod(
        namespace=key.namespace,
        name=key.name,
        uid=uid_of(Kind.POD, key, top),
        labels=metadata.get("labels").texts(),
        ip=ip,
        ready=ready,
        annotations=annotations,
        ready_since=_since(ready_condition) if ready else "",
        active_ports=ports,
        fault=fault,
    )


def _active_ports(
    field: Field, annotations: Mapping[str, str]
) -> tuple[frozenset[int] | None, str]:
    """The active ports that a pod's annotations name (None = all), and what is wrong with them."""
    name = next((name for name in ACTIVE_PORTS if name in annotations), None)
    if name is None:
        return None, ""
    texts = [text.strip() for text in annotations[name].split(",", MAX_ACTIVE_PORTS)]
    texts = [text for text in texts if text]
    bad = next((text for text in texts if not _is_port(text)), None)
    ports = frozenset(int(text) for text in texts if _is_port(text))
    if bad is None:
        return ports, ""
    fault = Field(field.subject, f"{field.path}[{name}]", bad).fault(
        f"{shown(bad)} is no port", "give ports from 1 to 65535 with commas between"
    )
    return ports or None, str(fault)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MAX_PORT


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


def _ready_condition(status: Field) -> Mapping[object, object] | None:
    """The condition Ready, if it is there and true."""
    if not isinstance(status.value, Mapping):
        return None
    conditions = status.value.get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if not isinstance(each, Mapping):
            continue
        if each.get("type") == "Ready" and each.get("status") == "True":
            return each
    return None


def _since(condition: Mapping[object, object] | None) -> str:
    value = None if condition is None else condition.get("lastTransitionTime")
    return str(value)[:MAX_TIME_LENGTH] if isinstance(value, str | datetime) else ""


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
        uid=uid_of(Kind.SERVICE, key, top),
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

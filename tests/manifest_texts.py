"""Manifests as tests write them: the smallest valid ones, with what a test cares about."""

import json
from typing import Any

Raw = dict[str, Any]


def pool(
    name: str = "pool-a",
    namespace: str = "ns1",
    *,
    ports: tuple[object, ...] = (8000,),
    labels: dict[str, Any] | None = None,
    **spec: Any,
) -> Raw:
    """An InferencePool of v1; further keywords are fields of its spec (None = left out)."""
    fields: Raw = {
        "selector": {"matchLabels": {"app": name} if labels is None else labels},
        "targetPorts": [{"number": port} for port in ports],
        "endpointPickerRef": {"name": f"{name}-epp", "port": {"number": 9002}},
        **spec,
    }
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def old_pool(name: str = "pool-a", namespace: str = "ns1", **spec: Any) -> Raw:
    """An InferencePool of v1alpha2."""
    return {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha2",
        "kind": "InferencePool",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"app": name},
            "targetPortNumber": 8000,
            "extensionRef": {"name": f"{name}-epp"},
            **spec,
        },
    }


def pod(
    name: str = "pod-0",
    namespace: str = "ns1",
    *,
    labels: dict[str, Any] | None = None,
    ip: object = "10.0.0.1",
    ready: str = "True",
    phase: str = "Running",
) -> Raw:
    """A Pod."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels or {"app": "pool-a"}},
        "status": {
            "phase": phase,
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


LLM_D, X_K8S = "llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"
"""Where objectives and rewrites may be; the first wins."""


def objective(
    name: str = "urgent", namespace: str = "ns1", *, api: str = LLM_D, **spec: Any
) -> Raw:
    """An InferenceObjective of pool-a; keywords are fields of its spec (None = left out)."""
    return _of_pool("InferenceObjective", api, name, namespace, {"priority": 1, **spec})


def rewrite(name: str = "canary", namespace: str = "ns1", *, api: str = LLM_D, **spec: Any) -> Raw:
    """An InferenceModelRewrite of pool-a, from `chat` to `chat-v1`; keywords as of `objective`."""
    rule = {"matches": [{"model": {"value": "chat"}}], "targets": [{"modelRewrite": "chat-v1"}]}
    return _of_pool("InferenceModelRewrite", api, name, namespace, {"rules": [rule], **spec})


def _of_pool(kind: str, api: str, name: str, namespace: str, spec: dict[str, Any]) -> Raw:
    fields = {"poolRef": {"name": "pool-a"}, **spec}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def text(*objects: Raw) -> str:
    """Documents of one file."""
    return "\n---\n".join(json.dumps(each) for each in objects) + "\n"

"""Clients of a scripted or fake API server, for tests."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from fleet.clock import Clock
from fleet.kube.client import KubeClient, open_client
from fleet.settings.model import KubernetesSettings


def write_kubeconfig(
    folder: Path,
    server: str,
    user: Mapping[str, Any] | None = None,
    *,
    namespace: str | None = "fleet-ns",
    **cluster: Any,
) -> Path:
    """A kubeconfig with one context; `user` is its user section, no credentials by default."""
    context = {"cluster": "c", "user": "u"}
    if namespace is not None:
        context["namespace"] = namespace
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": dict(user or {})}],
        "contexts": [{"name": "x", "context": context}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


@contextlib.asynccontextmanager
async def client_of(
    folder: Path,
    server: str,
    user: Mapping[str, Any] | None = None,
    *,
    request_timeout_seconds: float = 5.0,
    clock: Clock | None = None,
) -> AsyncIterator[KubeClient]:
    """A client that found its way by a kubeconfig."""
    path = write_kubeconfig(folder, server, user)
    settings = KubernetesSettings(
        kubeconfig=str(path), request_timeout_seconds=request_timeout_seconds
    )
    client = await open_client(settings, environ={}, clock=clock)
    try:
        yield client
    finally:
        await client.close()

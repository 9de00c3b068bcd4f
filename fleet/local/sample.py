"""The sample that runs when no manifests are given: 6 pools of 4 simulated vLLM servers each.

Written as ordinary manifests into the run folder, so that it takes the same way as anybody's own,
and can be edited while the fleet runs.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fleet.local.atomic import write_atomic
from fleet.local.model_config import ModelServer, ModelServersConfig
from fleet.local.model_engine import Speed

PICKER_PORT = 9002
PODS_PER_POOL = 4
FIRST_HOST = 11
"""The pods are 127.0.0.11 and up: all of 127/8 is loopback on Linux."""


@dataclass(frozen=True, slots=True)
class SamplePool:
    """A pool of the sample; it serves one model."""

    namespace: str
    name: str
    model: str
    failure_mode: str = "FailClose"


POOLS = (
    SamplePool("acme", "llama-8b", "meta-llama/Llama-3.1-8B-Instruct"),
    SamplePool("acme", "mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3"),
    SamplePool("globex", "llama-70b", "meta-llama/Llama-3.3-70B-Instruct", "FailOpen"),
    SamplePool("globex", "qwen-7b", "Qwen/Qwen2.5-7B-Instruct"),
    SamplePool("initech", "mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
    SamplePool("initech", "phi-4", "microsoft/phi-4", "FailOpen"),
)


def hosts() -> tuple[str, ...]:
    """Addresses of all the sample's pods, pool by pool."""
    count = len(POOLS) * PODS_PER_POOL
    return tuple(f"127.0.0.{FIRST_HOST + number}" for number in range(count))


def _pool(pool: SamplePool, port: int) -> dict[str, Any]:
    return {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {
            "name": pool.name,
            "namespace": pool.namespace,
            "uid": f"pool-{pool.namespace}-{pool.name}",
        },
        "spec": {
            "selector": {"matchLabels": {"app": pool.name}},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {
                "name": f"{pool.name}-epp",
                "port": {"number": PICKER_PORT},
                "failureMode": pool.failure_mode,
            },
        },
    }


def _pod(pool: SamplePool, number: int, ip: str) -> dict[str, Any]:
    name = f"{pool.name}-{number}"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": pool.namespace,
            "uid": f"pod-{pool.namespace}-{name}",
            "labels": {"app": pool.name},
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def write_sample(folder: Path, port: int, speed: Speed) -> ModelServersConfig:
    """Write one manifest file a pool into `folder`; returns the servers that belong to them."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    addresses = iter(hosts())
    servers = []
    for pool in POOLS:
        documents = [_pool(pool, port)]
        for number in range(PODS_PER_POOL):
            ip = next(addresses)
            documents.append(_pod(pool, number, ip))
            pod = f"{pool.namespace}/{pool.name}-{number}"
            servers.append(ModelServer(f"{ip}:{port}", pod, (pool.model,)))
        text = yaml.safe_dump_all(documents, sort_keys=False)
        write_atomic(folder / f"{pool.namespace}-{pool.name}.yaml", text)
    return ModelServersConfig(tuple(servers), speed)

"""The objects of `deploy/`, and the programs as they would be started there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.kube.contract import Raw
from fleet.settings.flags import ProcessArgs, coordinator_parser, parse_process, worker_parser
from tests.kustomize import NoKustomize, of_kind, only, overlay

KUBERNETES_VERSION = "1.37"
WORKLOADS = ("Deployment", "StatefulSet", "Job")
PASSWORDS = {"coordinator": "c" * 64, "worker": "d" * 64}
PARSERS = {"coordinator": coordinator_parser, "worker": worker_parser}


def rendered(name: str) -> tuple[Raw, ...]:
    try:
        return overlay(name)
    except NoKustomize as missing:
        pytest.skip(str(missing))


def pods(objects: tuple[Raw, ...]) -> Iterator[tuple[str, Raw]]:
    for each in objects:
        if each["kind"] in WORKLOADS:
            yield each["metadata"]["name"], each["spec"]["template"]


def container(objects: tuple[Raw, ...], component: str) -> Raw:
    deployment = only(objects, "Deployment", f"epp-fleet-{component}")
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    raw: Raw = found
    return raw


def environment(objects: tuple[Raw, ...], component: str) -> dict[str, str]:
    """The container's variables as a kubelet would set them."""
    fields = {
        "metadata.name": f"epp-fleet-{component}-7d4b9c6f5-x2x4z",
        "metadata.namespace": "epp-fleet",
        "status.podIP": "10.1.2.3",
        "spec.nodeName": "node-1",
        "metadata.labels['topology.kubernetes.io/zone']": "",
        "metadata.labels['pod-template-hash']": "6d5f7c9b8",
    }
    secrets = {
        ("epp-fleet-secrets", "redis-password"): "a" * 64,
        ("epp-fleet-redis", "url"): "rediss://u:p@redis:6379/0?ssl_ca_certs=/etc/ca.crt",
        ("epp-fleet-redis", "coordinator-password"): PASSWORDS["coordinator"],
        ("epp-fleet-redis", "worker-password"): PASSWORDS["worker"],
    }
    found: dict[str, str] = {}
    for each in container(objects, component)["env"]:
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            found[each["name"]] = fields[source["fieldRef"]["fieldPath"]]
        elif "secretKeyRef" in source:
            key = source["secretKeyRef"]
            found[each["name"]] = secrets[key["name"], key["key"]]
        else:
            value = re.sub(r"\$\((\w+)\)", lambda match: found[match[1]], each["value"])
            found[each["name"]] = value
    return found


def settings_text(objects: tuple[Raw, ...]) -> str:
    (config,) = of_kind(objects, "ConfigMap")
    text: str = config["data"]["settings.yaml"]
    return text


def started(objects: tuple[Raw, ...], component: str, folder: Path) -> ProcessArgs:
    """What the program makes of its arguments, file and environment."""
    config = folder / "settings.yaml"
    config.write_text(settings_text(objects))
    program, *arguments = container(objects, component)["args"]
    assert program == component
    assert arguments == ["--config", "/etc/epp-fleet/settings/settings.yaml"]
    argv = ["--config", str(config)]
    return parse_process(PARSERS[component](), component, argv, environment(objects, component))


def rules(objects: tuple[Raw, ...], name: str) -> list[Raw]:
    """The rules of a Role or ClusterRole."""
    (role,) = [*of_kind(objects, "Role", name), *of_kind(objects, "ClusterRole", name)]
    found: list[Raw] = role["rules"]
    return found

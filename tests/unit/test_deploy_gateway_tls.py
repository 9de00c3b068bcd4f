"""The component that mounts a certificate for the gateways' port."""

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from fleet.kube.contract import Raw
from tests.deploy_objects import KUBERNETES_VERSION, started
from tests.kustomize import DEPLOY, NoKustomize, only, overlay, rendered


@pytest.fixture
def objects(tmp_path: Path) -> tuple[Raw, ...]:
    """The overlay for the cluster with the component."""
    whole = {
        "resources": [os.path.relpath(DEPLOY / "overlays" / "cluster-wide", tmp_path)],
        "components": [os.path.relpath(DEPLOY / "components" / "gateway-tls", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    try:
        return rendered(tmp_path)
    except NoKustomize as missing:
        pytest.skip(str(missing))


def test_the_worker_serves_with_the_mounted_files(objects: tuple[Raw, ...], tmp_path: Path) -> None:
    """Both settings name files of the Secret's volume, which is mounted whole and read-only."""
    worker = started(objects, "worker", tmp_path).settings.worker
    folder = "/etc/epp-fleet/gateway-tls"
    assert (worker.tls_certificate_file, worker.tls_key_file) == (
        f"{folder}/tls.crt",
        f"{folder}/tls.key",
    )
    deployment = only(objects, "Deployment", "epp-fleet-worker")
    kubernetes_validate.validate(deployment, KUBERNETES_VERSION, strict=True)
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [each for each in pod["volumes"] if each["name"] == "gateway-tls"]
    assert volume["secret"]["secretName"] == "epp-fleet-gateway-tls"
    mounts = pod["containers"][0]["volumeMounts"]
    (mount,) = [each for each in mounts if each["name"] == "gateway-tls"]
    assert (mount["mountPath"], mount["readOnly"], "subPath" in mount) == (folder, True, False)


def test_without_it_a_worker_makes_its_own(tmp_path: Path) -> None:
    """Gateways that insist on TLS are served as shipped."""
    try:
        shipped = overlay("cluster-wide")
    except NoKustomize as missing:
        pytest.skip(str(missing))
    worker = started(shipped, "worker", tmp_path).settings.worker
    assert (worker.tls, worker.tls_certificate_file) == ("auto", "")

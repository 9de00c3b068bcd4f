"""What `deploy/` promises: valid manifests that fit each other, the programs and their settings."""

from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from fleet.kube.contract import Raw
from fleet.settings.model import Settings
from tests.deploy_objects import KUBERNETES_VERSION, PARSERS, pods, rendered, started
from tests.kustomize import DEPLOY, OVERLAYS, of_kind


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> tuple[Raw, ...]:
    """Each overlay, rendered."""
    return rendered(request.param)


@pytest.fixture
def whole() -> tuple[Raw, ...]:
    """The overlay for the cluster."""
    return rendered("cluster-wide")


@pytest.fixture
def settings(whole: tuple[Raw, ...], tmp_path: Path) -> Settings:
    return started(whole, "worker", tmp_path).settings


def test_every_object_is_valid(objects: tuple[Raw, ...]) -> None:
    """By the API's own schemas, strictly: no unknown field."""
    for each in objects:
        kubernetes_validate.validate(each, KUBERNETES_VERSION, strict=True)


def test_only_the_monitors_are_of_a_foreign_kind() -> None:
    """They are a component that nothing includes by itself."""
    foreign = [
        document["kind"]
        for path in sorted(DEPLOY.rglob("*.yaml"))
        if DEPLOY / "helm" not in path.parents
        for document in yaml.safe_load_all(path.read_text())
        if isinstance(document, dict)
        and str(document.get("apiVersion")).startswith("monitoring.coreos.com/")
    ]
    assert foreign == ["PodMonitor", "PodMonitor", "PrometheusRule"]
    for name in OVERLAYS:
        assert not {*foreign} & {each["kind"] for each in rendered(name)}


def test_what_refers_to_something_finds_it(objects: tuple[Raw, ...]) -> None:
    """ConfigMaps and accounts are there; of Secrets only those that the documentation makes."""
    documented = {
        "epp-fleet-secrets": {"token", "redis-password"},
        "epp-fleet-redis": {"url", "ca.crt", "coordinator-password", "worker-password"},
    }
    # What `epp-fleet ca init --secret epp-fleet` makes, mounted as a whole.
    documented |= {f"epp-fleet-{component}-tls": set() for component in PARSERS}
    config_maps = {each["metadata"]["name"] for each in of_kind(objects, "ConfigMap")}
    accounts = {each["metadata"]["name"] for each in of_kind(objects, "ServiceAccount")}
    for name, pod in pods(objects):
        spec = pod["spec"]
        if spec.get("automountServiceAccountToken", True):
            assert spec["serviceAccountName"] in accounts, name
        for volume in spec.get("volumes", []):
            if "configMap" in volume:
                wanted = volume["configMap"]
                assert wanted["name"] in config_maps or wanted.get("optional"), name
            else:
                keys = {item["key"] for item in volume["secret"].get("items", [])}
                assert keys <= documented[volume["secret"]["secretName"]], name
        for each in spec["containers"]:
            for variable in each.get("env", []):
                key = variable.get("valueFrom", {}).get("secretKeyRef")
                assert key is None or key["key"] in documented[key["name"]], name
            mounted = {mount["name"] for mount in each.get("volumeMounts", [])}
            assert mounted == {volume["name"] for volume in spec.get("volumes", [])}, name


def test_selectors_find_the_pods(objects: tuple[Raw, ...]) -> None:
    """Of Deployments, Services, budgets, spreads and policies: each selects what it is for."""
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(objects)}

    def selected(wanted: dict[str, str]) -> set[str]:
        return {name for name, has in labels.items() if wanted.items() <= has.items()}

    for each in objects:
        name, spec = each["metadata"]["name"], each.get("spec", {})
        if each["kind"] in ("Deployment", "PodDisruptionBudget"):
            assert selected(spec["selector"]["matchLabels"]) == {name}
        elif each["kind"] == "Service":
            expected = {"epp-fleet-workers": "epp-fleet-worker"}.get(name, name)
            assert selected(spec["selector"]) == {expected}
        elif each["kind"] == "NetworkPolicy":
            assert selected(spec["podSelector"]["matchLabels"]) == {name}
    for name, pod in pods(objects):
        for spread in pod["spec"].get("topologySpreadConstraints", []):
            assert selected(spread["labelSelector"]["matchLabels"]) == {name}

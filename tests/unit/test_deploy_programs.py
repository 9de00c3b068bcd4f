"""The programs as `deploy/` starts them, and how they live and die there."""

import json
import re
from pathlib import Path

import pytest
import yaml

from epp_worker.health import process_statuses
from fleet.certificates import Role
from fleet.certificates.folder import CA_CERTIFICATE, CERTIFICATE, KEY
from fleet.cli.main import make_parser
from fleet.kube.contract import Raw
from fleet.settings.kinds import ENDPOINT_SLICES, KUBERNETES, kinds_of
from fleet.settings.load import load_settings
from fleet.settings.model import Settings
from fleet.settings.store_url import parse_store_url
from tests.deploy_objects import PARSERS, PASSWORDS, container, pods, rendered, rules, started
from tests.kustomize import DEPLOY, OVERLAYS, of_kind, only


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


@pytest.mark.parametrize("component", ["coordinator", "worker"])
def test_the_programs_start_with_this(
    objects: tuple[Raw, ...], component: str, tmp_path: Path
) -> None:
    """Settings file, environment and arguments pass every check of the program itself."""
    args = started(objects, component, tmp_path)
    assert args.id == f"epp-fleet-{component}-7d4b9c6f5-x2x4z"
    kinds = kinds_of(args.settings)
    assert (kinds.source, kinds.routes, kinds.election) == (KUBERNETES, ENDPOINT_SLICES, KUBERNETES)
    assert args.settings.redis.url.startswith(
        ("redis://:aaaa", "rediss://", f"redis+sentinel://epp-{component}:{PASSWORDS[component]}")
    )
    token = args.settings.security.token_file
    mounts = {
        mount["name"]: mount["mountPath"] for mount in container(objects, component)["volumeMounts"]
    }
    assert token == f"{mounts['token']}/token"
    assert args.settings.picking.configs_folder == mounts["picking"]
    security = args.settings.security
    assert security.ca_file == f"{mounts['certificates']}/{CA_CERTIFICATE}"
    assert security.certificate_file == f"{mounts['certificates']}/{CERTIFICATE}"
    assert security.key_file == f"{mounts['certificates']}/{KEY}"


def test_the_job_makes_the_secrets_that_are_mounted(objects: tuple[Raw, ...]) -> None:
    """Job and CronJob are one pod; it is understood, and its rights name its Secrets."""
    job = only(objects, "Job", "epp-fleet-certificates")["spec"]["template"]
    cron = only(objects, "CronJob", "epp-fleet-certificates")["spec"]
    assert cron["jobTemplate"]["spec"]["template"] == job
    (running,) = job["spec"]["containers"]
    arguments = make_parser().parse_args(running["args"])
    assert arguments.secret == "epp-fleet"
    made = {f"{arguments.secret}-{role.value}-tls" for role in Role}
    mounted = {
        volume["secret"]["secretName"]
        for component in PARSERS
        for volume in only(objects, "Deployment", f"epp-fleet-{component}")["spec"]["template"][
            "spec"
        ]["volumes"]
        if volume["name"] == "certificates"
    }
    assert mounted == made
    by_name, making = rules(objects, "epp-fleet-certificates")
    assert set(by_name["resourceNames"]) == {*made, f"{arguments.secret}-ca"}
    assert (by_name["verbs"], making["verbs"]) == (["get", "update"], ["create"])


def test_all_run_the_image_of_its_component(objects: tuple[Raw, ...]) -> None:
    """Coordinators, workers, and what makes the certificates."""
    component = DEPLOY / "components" / "image" / "kustomization.yaml"
    (image,) = yaml.safe_load(component.read_text())["images"]
    text = json.dumps(objects)
    ours = re.findall(r'"image": "(epp-fleet[^"]*)"', text)
    assert ours == [f"{image['name']}:{image['newTag']}"] * 4


def test_a_worker_knows_where_it_is(objects: tuple[Raw, ...], tmp_path: Path) -> None:
    """Address, node, zone and release come from the pod; its deletion is found by its id."""
    worker = started(objects, "worker", tmp_path).settings.worker
    assert worker.release == "6d5f7c9b8"
    assert (worker.advertise_host, worker.node, worker.zone) == ("10.1.2.3", "node-1", "")


def test_the_scope(tmp_path: Path) -> None:
    """In one namespace only that is watched, and nothing is made outside of it."""
    for name, expected in zip(OVERLAYS, ("", "epp-fleet", "", ""), strict=True):
        objects = rendered(name)
        for component in PARSERS:
            found = started(objects, component, tmp_path).settings.kubernetes.watch_namespaces
            assert found == expected
    single = rendered("single-namespace")
    assert {each["metadata"].get("namespace") for each in single} == {"epp-fleet"}
    assert not {"Namespace", "ClusterRole", "ClusterRoleBinding"} & {e["kind"] for e in single}


def test_sentinels_are_asked_and_acknowledgements_asked_for(tmp_path: Path) -> None:
    """Three of them, each role with the user that docs/redis.md makes, and its password only."""
    objects = rendered("redis-sentinel")
    for component, password in PASSWORDS.items():
        redis = started(objects, component, tmp_path).settings.redis
        url = parse_store_url(redis.url)
        assert (len(url.sentinels), url.service, url.db) == (3, "fleet", 0)
        assert (url.username, url.password) == (f"epp-{component}", password)
        assert redis.min_acks == 1
        deployment = only(objects, "Deployment", f"epp-fleet-{component}")
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        (files,) = [each["secret"] for each in volumes if each["name"] == "redis"]
        assert [item["key"] for item in files["items"]] == ["ca.crt"]


def test_namespaces(objects: tuple[Raw, ...]) -> None:
    """What belongs to none says none, though kustomize would give most kinds one."""
    for each in objects:
        kind = each["kind"]
        without = kind == "Namespace" or kind.startswith(("Cluster", "ValidatingAdmission"))
        assert each["metadata"].get("namespace") == (None if without else "epp-fleet"), kind


def test_variables_of_services_are_no_settings(objects: tuple[Raw, ...]) -> None:
    """A Service epp-fleet-redis would give every pod EPP_FLEET_REDIS_PORT and more."""
    for name, pod in pods(objects):
        assert pod["spec"]["enableServiceLinks"] is False, name


def test_the_reference_of_settings_is_valid() -> None:
    """deploy/settings.yaml, which the documentation points at."""
    assert load_settings(DEPLOY / "settings.yaml", {}, {}) == Settings()


def test_ports(whole: tuple[Raw, ...], settings: Settings) -> None:
    """Containers, probes, Services and policies speak of the ports that the programs listen on."""
    own, coordinator = settings.worker, settings.coordinator
    declared = {port["name"]: port["containerPort"] for port in container(whole, "worker")["ports"]}
    assert declared == {
        "ext-proc": own.ext_proc_port,
        "health": own.health_port,
        "internal": own.internal_port,
        "metrics": own.http_port,
    }
    declared = {
        port["name"]: port["containerPort"] for port in container(whole, "coordinator")["ports"]
    }
    assert declared == {"http": coordinator.http_port, "internal": coordinator.internal_port}
    for name, pod in pods(whole):
        port = pod["metadata"].get("annotations", {}).get("prometheus.io/port")
        assert port == {"epp-fleet-worker": "9090", "epp-fleet-coordinator": "8080"}.get(name)


def test_the_grace_period_is_that_of_the_settings(
    whole: tuple[Raw, ...], settings: Settings
) -> None:
    """A worker that drains as long as it may is not killed: 30 + 600 + 10."""
    pod = only(whole, "Deployment", "epp-fleet-worker")["spec"]["template"]["spec"]
    own = settings.worker
    assert pod["terminationGracePeriodSeconds"] == own.quiet_seconds + own.stream_drain_seconds + 10
    assert pod["terminationGracePeriodSeconds"] == 640
    assert "lifecycle" not in container(whole, "worker")


def test_probes(whole: tuple[Raw, ...], settings: Settings) -> None:
    """Names that the worker's health service knows, paths that the coordinator serves."""
    names = process_statuses(live=True, ready=True, serving=True)
    worker, coordinator = container(whole, "worker"), container(whole, "coordinator")
    for probe, name in (("readinessProbe", "readiness"), ("livenessProbe", "liveness")):
        assert worker[probe]["grpc"] == {"port": settings.worker.health_port, "service": name}
        assert name in names
    assert coordinator["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert coordinator["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}


def test_the_autoscaler_owns_the_number_of_workers(objects: tuple[Raw, ...]) -> None:
    """An apply never resets it (uberswe/createmod.com#1097); scaling in takes one at a time."""
    worker = only(objects, "Deployment", "epp-fleet-worker")["spec"]
    assert "replicas" not in worker
    assert only(objects, "Deployment", "epp-fleet-coordinator")["spec"]["replicas"] == 3
    scaler = only(objects, "HorizontalPodAutoscaler", "epp-fleet-worker")["spec"]
    assert scaler["scaleTargetRef"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "epp-fleet-worker",
    }
    assert scaler["minReplicas"] >= 3
    down = scaler["behavior"]["scaleDown"]
    assert down["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 300}]
    # What was added within the period may be taken back in one step: that must be over by then.
    assert down["stabilizationWindowSeconds"] > down["policies"][0]["periodSeconds"]


def test_nothing_is_served_by_fewer_for_a_roll_out(objects: tuple[Raw, ...]) -> None:
    """A new pod comes first; evictions leave most (uberswe/createmod.com#1097)."""
    for name in ("epp-fleet-coordinator", "epp-fleet-worker"):
        rolling = only(objects, "Deployment", name)["spec"]["strategy"]["rollingUpdate"]
        assert rolling == {"maxSurge": 1, "maxUnavailable": 0}
    budgets = {b["metadata"]["name"]: b["spec"] for b in of_kind(objects, "PodDisruptionBudget")}
    assert budgets["epp-fleet-coordinator"]["maxUnavailable"] == 1
    assert budgets["epp-fleet-worker"]["maxUnavailable"] == "25%"

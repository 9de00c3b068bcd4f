"""What `deploy/` promises: valid manifests that fit each other, the programs and their settings."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from coordinator.election.lease_record import lease_name
from epp_worker.health import process_statuses
from fleet.certificates import Role
from fleet.certificates.folder import CA_CERTIFICATE, CERTIFICATE, KEY
from fleet.cli.main import make_parser
from fleet.kube.contract import Raw
from fleet.settings.flags import ProcessArgs, coordinator_parser, parse_process, worker_parser
from fleet.settings.kinds import ENDPOINT_SLICES, KUBERNETES, kinds_of
from fleet.settings.load import load_settings
from fleet.settings.model import Settings
from fleet.settings.store_url import parse_store_url
from tests.kustomize import DEPLOY, OVERLAYS, NoKustomize, of_kind, only, overlay

KUBERNETES_VERSION = "1.37"
WORKLOADS = ("Deployment", "StatefulSet", "Job")
PASSWORDS = {"coordinator": "c" * 64, "worker": "d" * 64}
PARSERS = {"coordinator": coordinator_parser, "worker": worker_parser}


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> tuple[Raw, ...]:
    """Each overlay, rendered."""
    return rendered(request.param)


@pytest.fixture
def whole() -> tuple[Raw, ...]:
    """The overlay for the cluster."""
    return rendered("cluster-wide")


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


@pytest.fixture
def settings(whole: tuple[Raw, ...], tmp_path: Path) -> Settings:
    return started(whole, "worker", tmp_path).settings


# -- validity -----------------------------------------------------------------------------------


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


# -- the programs -------------------------------------------------------------------------------


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


# -- life and death -----------------------------------------------------------------------------


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


# -- security -----------------------------------------------------------------------------------


def test_pods_are_confined(objects: tuple[Raw, ...]) -> None:
    """Not root, a read-only root, no capability, seccomp; memory bounded, no CPU limit."""
    for name, pod in pods(objects):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys(), name
        for each in spec["containers"]:
            assert each["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name
            assert {"cpu", "memory"} <= each["resources"]["requests"].keys(), name
            assert each["resources"]["limits"].keys() == {"memory"}, name


def test_no_sidecar_beside_a_worker(objects: tuple[Raw, ...]) -> None:
    """Both meshes that inject by themselves are told not to."""
    pod = only(objects, "Deployment", "epp-fleet-worker")["spec"]["template"]
    assert pod["metadata"]["labels"]["sidecar.istio.io/inject"] == "false"
    assert pod["metadata"]["annotations"]["linkerd.io/inject"] == "disabled"
    assert len(pod["spec"]["containers"]) == 1


def test_no_secret_is_in_the_manifests(objects: tuple[Raw, ...]) -> None:
    """They are made beside them, so an apply never overwrites one."""
    assert not of_kind(objects, "Secret")


def test_the_store_is_reached_by_the_fleet_alone(whole: tuple[Raw, ...]) -> None:
    """By policy and by password; it reaches nothing itself."""
    policy = only(whole, "NetworkPolicy", "epp-fleet-redis")["spec"]
    (rule,) = policy["ingress"]
    assert rule["ports"] == [{"port": 6379}]
    (peer,) = rule["from"]
    wanted = {each["key"]: each["values"] for each in peer["podSelector"]["matchExpressions"]}
    assert wanted == {
        "app.kubernetes.io/name": ["epp-fleet"],
        "app.kubernetes.io/component": ["coordinator", "worker"],
    }
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert not policy.get("egress")


def test_who_reaches_a_worker(whole: tuple[Raw, ...]) -> None:
    """Gateways 9002, the leader 9002-9004, other workers 9004, Prometheus 9090."""
    rules = only(whole, "NetworkPolicy", "epp-fleet-worker")["spec"]["ingress"]
    found: dict[str, list[Raw]] = {}
    for rule in rules:
        peers = rule.get("from", [{}])
        label = peers[0].get("podSelector", {}).get("matchLabels", {})
        who = label.get("app.kubernetes.io/component") or label.get("app.kubernetes.io/name", "any")
        found[who] = rule["ports"]
    assert found == {
        "any": [{"port": 9002}],
        "coordinator": [{"port": 9002, "endPort": 9004}, {"port": 9090}],
        "worker": [{"port": 9004}],
        "prometheus": [{"port": 9090}],
    }


def rules(objects: tuple[Raw, ...], name: str) -> list[Raw]:
    """The rules of a Role or ClusterRole."""
    (role,) = [*of_kind(objects, "Role", name), *of_kind(objects, "ClusterRole", name)]
    found: list[Raw] = role["rules"]
    return found


def test_one_namespace_has_the_same_rules() -> None:
    """Only where they hold differs."""
    for name in ("epp-fleet-coordinator", "epp-fleet-coordinator-own", "epp-fleet-worker"):
        expected = rules(rendered("cluster-wide"), name)
        assert rules(rendered("single-namespace"), name) == expected


def test_rules_name_what_they_allow(whole: tuple[Raw, ...]) -> None:
    """No wildcard; no Secret but to who makes certificates; workers change nothing; the Lease is
    that of this fleet."""
    for role in [*of_kind(whole, "Role"), *of_kind(whole, "ClusterRole")]:
        for rule in role["rules"]:
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not any("*" in word for word in words)
            assert ("secrets" in words) == (role["metadata"]["name"] == "epp-fleet-certificates")
    verbs = {verb for rule in rules(whole, "epp-fleet-worker") for verb in rule["verbs"]}
    assert verbs == {"list", "watch"}
    fleet = yaml.safe_load(settings_text(whole))["fleet"]
    names = [rule.get("resourceNames") for rule in rules(whole, "epp-fleet-coordinator-own")]
    assert [lease_name(fleet)] in names


def test_bindings_are_of_the_accounts_in_this_namespace(objects: tuple[Raw, ...]) -> None:
    """Each role is bound to the account of its own name."""
    for each in [*of_kind(objects, "RoleBinding"), *of_kind(objects, "ClusterRoleBinding")]:
        (subject,) = each["subjects"]
        account = each["metadata"]["name"].removesuffix("-own")
        assert subject == {"kind": "ServiceAccount", "name": account, "namespace": "epp-fleet"}
        assert each["roleRef"]["name"] == each["metadata"]["name"]
        assert each["roleRef"]["kind"] == each["kind"].removesuffix("Binding")


@pytest.mark.parametrize("name", ["cluster-wide", "external-redis"])
def test_policies_name_this_account_and_fleet(name: str) -> None:
    """They stand in expressions, where kustomize does not look."""
    objects = rendered(name)
    fleet = yaml.safe_load(settings_text(objects))["fleet"]
    account = only(objects, "ServiceAccount", "epp-fleet-coordinator")["metadata"]
    user = f"system:serviceaccount:{account['namespace']}:{account['name']}"
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    assert len(policies) == 3
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert condition["expression"] == f"request.userInfo.username == '{user}'"
        assert policy["spec"]["failurePolicy"] == "Fail"
        binding = only(objects, "ValidatingAdmissionPolicyBinding", policy["metadata"]["name"])
        assert binding["spec"]["validationActions"] == ["Deny"]
        if "pods" not in policy["metadata"]["name"]:
            texts = [each["expression"] for each in policy["spec"]["validations"]]
            assert any(f"== '{fleet}'" in text for text in texts)

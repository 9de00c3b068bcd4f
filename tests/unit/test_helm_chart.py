"""The chart means what the kustomizations mean, object by object; it refuses unknown values."""

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from fleet.kube.contract import Raw
from fleet.settings.fields import all_fields
from tests.deploy_objects import KUBERNETES_VERSION, PARSERS, started
from tests.go_tools import NoTool
from tests.helm import CHART, Refused, Values, chart, helm, notes
from tests.kustomize import DEPLOY, NoKustomize, of_kind, only, overlay, rendered

SENTINELS = [f"redis-{number}.redis.redis:26379" for number in range(3)]
VARIANTS: dict[str, Values] = {
    "cluster-wide": {},
    "single-namespace": {"scope": "namespace"},
    "external-redis": {"redis": {"mode": "external"}},
    "redis-sentinel": {"redis": {"mode": "sentinel", "sentinel": {"addresses": SENTINELS}}},
}
"""By overlay, the values that mean the same."""

COMPONENTS: dict[str, Values] = {
    "gateway-tls": {"gatewayTls": {"existingSecret": "epp-fleet-gateway-tls"}},
    "read-authorization": {"readAuthorization": {"enabled": True}},
    "pod-monitor": {"podMonitor": {"enabled": True}},
    "grafana-dashboards": {"grafanaDashboards": {"enabled": True}},
    "prometheus-rules": {"prometheusRules": {"enabled": True}},
}
"""By component, beside the overlay for the cluster."""

MARKS = ("part-of", "instance", "version", "managed-by")
"""Labels of objects that only say where they come from."""


def of_chart(values: Values | None = None) -> tuple[Raw, ...]:
    try:
        return chart(values)
    except NoTool as missing:
        pytest.skip(str(missing))


def of_kustomize(render: Callable[[], tuple[Raw, ...]]) -> tuple[Raw, ...]:
    try:
        return render()
    except NoKustomize as missing:
        pytest.skip(str(missing))


def containers(raw: Raw) -> Iterator[Raw]:
    """Of whatever makes pods."""
    spec = raw.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    pod = spec.get("template", {}).get("spec", {})
    yield from pod.get("containers", ())


def by_name(items: list[Raw]) -> list[Raw]:
    return sorted(items, key=lambda each: str(each["name"]))


def pod_of(raw: Raw) -> Raw | None:
    spec = raw.get("spec", {})
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    template: Raw | None = spec.get("template") if isinstance(spec, dict) else None
    return template


def meant(objects: tuple[Raw, ...]) -> dict[tuple[str, str, str], Raw]:
    """By kind, namespace and name; without what only tells which tool made it.

    The order of variables and volumes is left out; that variables are defined before they are used
    is what the programs' own start shows.
    """
    text = json.dumps(copy.deepcopy(objects))
    text = re.sub(r'"epp-fleet-settings-[a-z0-9]{10}"', '"epp-fleet-settings"', text)
    text = re.sub(r'"epp-fleet-certificates-[a-z0-9]{8}"', '"epp-fleet-certificates"', text)
    found: dict[tuple[str, str, str], Raw] = {}
    for raw in json.loads(text):
        head = raw["metadata"]
        if raw["kind"] == "Namespace":
            continue  # a release is installed into one that is there
        head["labels"] = {
            key: value
            for key, value in head.get("labels", {}).items()
            if key not in ("helm.sh/chart", *(f"app.kubernetes.io/{name}" for name in MARKS))
        }
        if raw["kind"] == "ConfigMap" and "settings.yaml" in raw["data"]:
            raw["data"]["settings.yaml"] = yaml.safe_load(raw["data"]["settings.yaml"])
        pod = pod_of(raw)
        if pod:
            pod["metadata"].get("annotations", {}).pop("checksum/settings", None)
            if "volumes" in pod["spec"]:
                pod["spec"]["volumes"] = by_name(pod["spec"]["volumes"])
        for each in containers(raw):
            for field in ("env", "volumeMounts"):
                if field in each:
                    each[field] = by_name(each[field])
        key = raw["kind"], head.get("namespace", ""), head["name"]
        assert key not in found, key
        found[key] = raw
    return found


def assert_same(ours: tuple[Raw, ...], theirs: tuple[Raw, ...]) -> None:
    """One by one, so that a failure shows the object."""
    one, other = meant(ours), meant(theirs)
    assert one.keys() == other.keys()
    for key in one:
        assert one[key] == other[key], key


@pytest.mark.parametrize("name", VARIANTS)
def test_the_chart_is_the_overlay(name: str) -> None:
    """Every object of it, and no other."""
    assert_same(of_chart(VARIANTS[name]), of_kustomize(lambda: overlay(name)))


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_value_is_the_component(name: str, tmp_path: Path) -> None:
    """What is added to the overlay for the cluster."""
    own = DEPLOY / "overlays" / "cluster-wide"
    whole = yaml.safe_load((own / "kustomization.yaml").read_text())
    # Where the overlay's own comment has it.
    whole["components"].insert(-2, f"../../components/{name}")
    for field in ("resources", "components"):
        whole[field] = [os.path.relpath(own / each, tmp_path) for each in whole[field]]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    assert_same(of_chart(COMPONENTS[name]), of_kustomize(lambda: rendered(tmp_path)))


def test_the_comparison_sees_a_difference() -> None:
    """Of the least thing."""
    objects = of_chart()
    changed = copy.deepcopy(objects)
    only(changed, "Deployment", "epp-fleet-worker")["spec"]["minReadySeconds"] = 6
    with pytest.raises(AssertionError):
        assert_same(objects, changed)
    with pytest.raises(AssertionError):
        assert_same(objects, objects[1:])


RICH: Values = {
    "name": "second",
    "fleet": "blue",
    "image": {"repository": "r/epp", "tag": "9", "pullPolicy": "Always", "pullSecrets": ["pull"]},
    "settings": {"worker": {"quiet_seconds": 5.5}, "ownership": {"claim": "list", "pools": "a/b"}},
    "picking": {"chat.yaml": "kind: EndpointPickerConfig\nplugins: []\n"},
    "coordinator": {"replicas": 2, "extraEnv": [{"name": "A", "value": "b"}]},
    "worker": {
        "autoscaling": {"enabled": False},
        "replicas": 7,
        "resources": {"requests": {"cpu": 1.5}, "limits": {"memory": "3Gi"}},
        "podAnnotations": {"note": "x"},
        "podLabels": {"team": "ml"},
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "priorityClassName": "high",
        "extraEnv": [
            {"name": "EPP_FLEET_LOG__LEVEL", "value": "debug"},
            {"name": "REDIS_LOGIN", "value": "other"},
        ],
    },
    "redis": {
        "mode": "sentinel",
        "existingSecret": "store",
        "sentinel": {"addresses": SENTINELS, "tls": True, "db": 2, "minAcks": 0},
    },
    "existingSecret": "own",
    "certificates": {"from": "cert-manager", "certManager": {"issuerName": "corp"}},
    "networkPolicy": {"gateways": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    "podMonitor": {"enabled": True, "tokenSecret": "reader", "labels": {"release": "prom"}},
    "prometheusRules": {"enabled": True, "docs": "https://docs.corp/epp", "labels": {"p": "q"}},
    "grafanaDashboards": {"enabled": True},
}


@pytest.mark.parametrize("component", PARSERS)
def test_the_programs_start_with_this(component: str, tmp_path: Path) -> None:
    """With the defaults: settings, environment and arguments pass the programs' own checks."""
    settings = started(of_chart(), component, tmp_path).settings
    assert settings.redis.url == f"redis://:{'a' * 64}@epp-fleet-redis:6379/0"
    assert settings.fleet == "default"


@pytest.mark.parametrize(
    "values",
    [{}, RICH, {"certificates": {"from": "cert-manager"}}],
    ids=["default", "rich", "cert-manager"],
)
def test_every_object_is_valid(values: Values) -> None:
    """By the API's own schemas, strictly; none twice."""
    foreign = {"PodMonitor", "PrometheusRule", "Certificate", "Issuer"}
    objects = of_chart(values)
    for each in objects:
        if each["kind"] not in foreign:
            kubernetes_validate.validate(each, KUBERNETES_VERSION, strict=True)
    assert len(meant(objects)) == len(objects)


def test_values_arrive(tmp_path: Path) -> None:
    """Each value of a rich set is where it belongs, under the other name."""
    objects = of_chart(RICH)
    names = {each["metadata"]["name"] for each in objects}
    assert all(name.startswith("second-") for name in names - {"second"})
    worker = only(objects, "Deployment", "second-worker")["spec"]
    pod = worker["template"]["spec"]
    assert worker["replicas"] == 7
    assert worker["template"]["metadata"]["labels"]["team"] == "ml"
    assert worker["template"]["metadata"]["annotations"]["note"] == "x"
    assert pod["terminationGracePeriodSeconds"] == 616  # 5.5 + 600 + 10, rounded up
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"disk": "ssd"}, "high")
    assert (pod["affinity"], pod["imagePullSecrets"]) == ({"nodeAffinity": {}}, [{"name": "pull"}])
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    (container,) = pod["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("r/epp:9", "Always")
    assert container["resources"]["requests"] == {"cpu": 1.5, "memory": "512Mi"}
    environment = {each["name"]: each for each in container["env"]}
    assert len(environment) == len(container["env"])
    order = list(environment)
    assert order.index("REDIS_LOGIN") < order.index("EPP_FLEET_REDIS__URL")
    assert environment["REDIS_LOGIN"]["value"] == "other"
    assert environment["EPP_FLEET_LOG__LEVEL"]["value"] == "debug"
    assert environment["EPP_FLEET_REDIS__URL"]["value"] == (
        f"rediss+sentinel://$(REDIS_LOGIN):$(REDIS_PASSWORD)@{','.join(SENTINELS)}/fleet/2"
        "?ssl_ca_certs=/etc/epp-fleet/redis/ca.crt"
    )
    key = environment["REDIS_PASSWORD"]["valueFrom"]["secretKeyRef"]
    assert key == {"name": "store", "key": "worker-password"}
    assert not of_kind(objects, "HorizontalPodAutoscaler") + of_kind(objects, "Job")
    (config,) = of_kind(objects, "ConfigMap", "second-settings")
    settings = yaml.safe_load(config["data"]["settings.yaml"])
    assert settings["ownership"] == {
        "controller_name": "epp-fleet.dev/blue",
        "claim": "list",
        "pools": "a/b",
    }
    assert settings["worker"]["peers"] == "dns:second-workers:9004"
    picking = only(objects, "ConfigMap", "second-picking")["data"]
    assert picking == {"chat.yaml": "kind: EndpointPickerConfig\nplugins: []\n"}
    policy = only(objects, "NetworkPolicy", "second-worker")["spec"]["ingress"][0]
    assert policy["from"] == [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]
    for each in of_kind(objects, "Certificate"):
        assert each["spec"]["issuerRef"]["name"] == "corp"
    alerts = only(objects, "PrometheusRule", "second")
    assert alerts["metadata"]["labels"]["p"] == "q"
    assert '"https://docs.corp/epp/runbook.md#eppfleetnoleader"' in json.dumps(alerts)
    assert "example.com" not in json.dumps(alerts)
    monitor = only(objects, "PodMonitor", "second-worker")
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert "authorization" in monitor["spec"]["podMetricsEndpoints"][0]


@pytest.mark.parametrize("scaled", [True, False])
def test_the_number_of_workers_is_the_autoscalers_if_there_is_one(scaled: bool) -> None:
    """Else a value's; there is a disruption budget either way (uberswe/createmod.com#1097)."""
    objects = of_chart({"worker": {"autoscaling": {"enabled": scaled}, "replicas": 7}})
    worker = only(objects, "Deployment", "epp-fleet-worker")["spec"]
    assert worker.get("replicas") == (None if scaled else 7)
    assert len(of_kind(objects, "HorizontalPodAutoscaler")) == scaled
    budget = only(objects, "PodDisruptionBudget", "epp-fleet-worker")["spec"]
    assert budget["selector"] == worker["selector"]


def test_certificates_of_cert_manager_are_those_that_are_mounted() -> None:
    """Both roles' names, as peers look for them, and the Secrets; a CA of the fleet's own."""
    objects = of_chart({"certificates": {"from": "cert-manager"}})
    found = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "Certificate")}
    for role in PARSERS:
        spec = found[f"epp-fleet-{role}"]
        assert spec["secretName"] == f"epp-fleet-{role}-tls"
        assert spec["dnsNames"] == [f"{role}.default.epp-fleet.internal"]
        assert spec["usages"] == ["server auth", "client auth"]
        assert spec["issuerRef"] == {
            "name": "epp-fleet-ca",
            "kind": "Issuer",
            "group": "cert-manager.io",
        }
    assert found["epp-fleet-ca"]["isCA"]
    issuers = {each["metadata"]["name"]: each["spec"] for each in of_kind(objects, "Issuer")}
    assert issuers["epp-fleet-ca"] == {"ca": {"secretName": found["epp-fleet-ca"]["secretName"]}}
    assert "selfSigned" in issuers[found["epp-fleet-ca"]["issuerRef"]["name"]]


def test_changed_settings_roll_the_pods_and_make_a_new_job() -> None:
    """And nothing rolls without a change."""

    def marks(values: Values) -> list[str]:
        objects = of_chart(values)
        (job,) = of_kind(objects, "Job")
        annotations = [
            each["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
            for each in of_kind(objects, "Deployment")
            if "redis" not in each["metadata"]["name"]
        ]
        return [job["metadata"]["name"], *annotations]

    first, other = marks({}), marks({"settings": {"log": {"level": "debug"}}})
    assert len(first) == 3
    assert not set(first) & set(other)
    assert marks({"coordinator": {"replicas": 5}}) == first


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"wrker": {}}, "additional properties 'wrker' not allowed"),
        ({"coordinator": {"replicas": "many"}}, "at '/coordinator/replicas': got string"),
        ({"coordinator": {"replicas": 0}}, "at '/coordinator/replicas': minimum"),
        ({"worker": {"resources": {"limits": {"memory": "lots"}}}}, "'/worker/resources/limits"),
        ({"worker": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "at '/worker/podLabels"),
        ({"scope": "all"}, "at '/scope': value must be one of 'cluster', 'namespace'"),
        ({"redis": {"mode": "sentinel"}}, "needs redis.sentinel.addresses"),
        ({"redis": {"sentinel": {"addresses": ["redis"]}}}, "at '/redis/sentinel/addresses/0'"),
        ({"settings": {"workr": {}}}, "settings.workr: no such section; there are bounds, "),
        ({"settings": {"fleet": {}}}, "settings.fleet: no such section; there are bounds, "),
        ({"settings": {"worker": {"hosts": 1}}}, "settings.worker.hosts: no such field; there are"),
        ({"settings": {"worker": {"host": {"a": 1}}}}, "at '/settings/worker/host'"),
        ({"picking": {"chat": "x"}}, "at '/picking': additional properties 'chat'"),
        ({"certificates": {"from": "vault"}}, "at '/certificates/from'"),
        ({"name": "Big"}, "at '/name': 'Big' does not match pattern"),
        ({"scope": "namespace", "readAuthorization": {"enabled": True}}, "needs scope: cluster"),
    ],
)
def test_bad_values_are_refused_by_name(values: Values, said: str) -> None:
    """Where and what; no template error."""
    try:
        with pytest.raises(Refused) as refused:
            chart(values)
    except NoTool as missing:
        pytest.skip(str(missing))
    assert said in str(refused.value)


def test_the_schema_has_every_value_and_nothing_else() -> None:
    """As values.yaml has them, each with a default."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def check(below: Raw, value: Any, path: str) -> None:
        target = below["$ref"].rpartition("/")[2] if "$ref" in below else ""
        below = schema["$defs"][target] if target else below
        if below.get("type") != "object":
            return
        if "properties" in below and below.get("additionalProperties") is False and value:
            free = target in ("amounts", "resources")
            assert value.keys() == below["properties"].keys() or free, path
            for key, each in value.items():
                check(below["properties"][key], each, f"{path}.{key}")

    del schema["properties"]["global"]
    assert schema["additionalProperties"] is False
    check(schema, values, "")


def test_every_setting_may_be_a_value() -> None:
    """The names that the chart knows are those of the programs."""
    known = yaml.safe_load((CHART / "files" / "settings.yaml").read_text())
    paths = {f"{name}.{field}" for name in known if name != "fleet" for field in known[name]}
    assert paths | {"fleet"} == set(all_fields())


def test_helm_finds_nothing_to_complain_about() -> None:
    """`helm lint`, strictly."""
    try:
        said = helm("lint", str(CHART), "--strict")
    except NoTool as missing:
        pytest.skip(str(missing))
    assert "0 chart(s) failed" in said
    assert "[WARNING]" not in said


def test_the_notes_teach_the_first_steps() -> None:
    """What is missing until pods start, what to wait for, what to do, where to look."""
    try:
        default, rich = notes(), notes(RICH)
    except NoTool as missing:
        pytest.skip(str(missing))
    assert "epp-fleet-secrets: token, redis-password" in default
    assert "rollout status deployment/epp-fleet-worker" in default
    assert "Apply an InferencePool" in default
    assert "epp-fleet pools --coordinator http://127.0.0.1:8080" in default
    assert "Workers stay at 3" in default
    assert "Whoever reaches port 9002" in default
    assert "own: token\n" in rich
    assert "store: coordinator-password, worker-password" in rich
    assert "Workers stay" not in rich
    assert "Whoever reaches" not in rich
    for text in (default, rich):
        assert "<no value>" not in text
        assert max(map(len, text.splitlines())) <= 160

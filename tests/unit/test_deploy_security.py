"""What `deploy/` lets pods, accounts and neighbours do."""

import pytest
import yaml

from coordinator.election.lease_record import lease_name
from fleet.kube.contract import Raw
from tests.deploy_objects import pods, rendered, rules, settings_text
from tests.kustomize import OVERLAYS, of_kind, only


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest) -> tuple[Raw, ...]:
    """Each overlay, rendered."""
    return rendered(request.param)


@pytest.fixture
def whole() -> tuple[Raw, ...]:
    """The overlay for the cluster."""
    return rendered("cluster-wide")


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

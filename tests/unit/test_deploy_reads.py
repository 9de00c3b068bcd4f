"""The component that authorizes reads, and the sample of a reader."""

import os
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from fleet.kube.contract import Raw
from fleet.kube.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS
from tests.deploy_objects import KUBERNETES_VERSION, PARSERS, started
from tests.kustomize import DEPLOY, OVERLAYS, NoKustomize, of_kind, only, overlay, rendered

NAME = "epp-fleet-read-authorization"


@pytest.fixture
def objects(tmp_path: Path) -> tuple[Raw, ...]:
    """The overlay for the cluster with the component."""
    whole = {
        "resources": [os.path.relpath(DEPLOY / "overlays" / "cluster-wide", tmp_path)],
        "components": [os.path.relpath(DEPLOY / "components" / "read-authorization", tmp_path)],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(whole))
    try:
        return rendered(tmp_path)
    except NoKustomize as missing:
        pytest.skip(str(missing))


def test_both_programs_authorize_reads(objects: tuple[Raw, ...], tmp_path: Path) -> None:
    """With it they do; without it reads are open."""
    for component in PARSERS:
        assert started(objects, component, tmp_path).settings.security.reads == "kubernetes"
        for name in OVERLAYS:
            assert started(overlay(name), component, tmp_path).settings.security.reads == "open"


def test_the_two_rights_come_with_the_component_alone(objects: tuple[Raw, ...]) -> None:
    """`create` on both reviews, for both accounts; no overlay gives them by itself."""
    for each in of_kind(objects, "ClusterRole", NAME) + of_kind(
        objects, "ClusterRoleBinding", NAME
    ):
        kubernetes_validate.validate(each, KUBERNETES_VERSION, strict=True)
    rules = only(objects, "ClusterRole", NAME)["rules"]
    assert {
        f"/apis/{rule['apiGroups'][0]}/v1/{rule['resources'][0]}": rule["verbs"] for rule in rules
    } == {TOKEN_REVIEWS: ["create"], ACCESS_REVIEWS: ["create"]}
    binding = only(objects, "ClusterRoleBinding", NAME)
    assert binding["roleRef"]["name"] == NAME
    assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [
        ("epp-fleet-coordinator", "epp-fleet"),
        ("epp-fleet-worker", "epp-fleet"),
    ]
    for name in OVERLAYS:
        assert "reviews" not in str(overlay(name))


def test_the_sample_of_a_reader() -> None:
    """Valid, and good for the metrics alone."""
    text = (DEPLOY / "samples" / "metrics-reader.yaml").read_text()
    sample = [each for each in yaml.safe_load_all(text) if each]
    for each in sample:
        kubernetes_validate.validate(each, KUBERNETES_VERSION, strict=True)
    (role,) = of_kind(sample, "ClusterRole")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    (binding,), (account,) = (
        of_kind(sample, "ClusterRoleBinding"),
        of_kind(sample, "ServiceAccount"),
    )
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"][0]["name"] == account["metadata"]["name"]

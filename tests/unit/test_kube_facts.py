"""What is kept of raw objects."""

import json

import msgspec
import pytest

from fleet.errors import ManifestError
from fleet.kube.listwatch_cache import key_of, version_of
from fleet.model import Pod, Pool
from fleet.sources.contract import Kind
from fleet.sources.kubernetes_facts import COLLECTIONS, decoder, keeper
from tests import manifest_texts as texts

V1, OLD = COLLECTIONS[Kind.POOL]
(PODS,) = COLLECTIONS[Kind.POD]


def without_head(raw: texts.Raw) -> texts.Raw:
    """As an item of a list."""
    return {key: value for key, value in raw.items() if key not in ("apiVersion", "kind")}


def test_items_of_a_list_need_no_kind() -> None:
    """It is that of the collection; both groups make the same fact."""
    v1 = keeper(Kind.POOL, V1)(without_head(texts.pool("a")))
    old = keeper(Kind.POOL, OLD)(without_head(texts.old_pool("a")))
    assert isinstance(v1, Pool)
    assert isinstance(old, Pool)
    assert (v1.ref, v1.target_ports) == (old.ref, old.target_ports)


def test_paths() -> None:
    """Those of the API server."""
    assert V1.path == "/apis/inference.networking.k8s.io/v1/inferencepools"
    assert OLD.path == "/apis/inference.networking.x-k8s.io/v1alpha2/inferencepools"
    assert PODS.path == "/api/v1/pods"
    assert [each.path for each in COLLECTIONS[Kind.OBJECTIVE]] == [
        "/apis/llm-d.ai/v1alpha2/inferenceobjectives",
        "/apis/inference.networking.x-k8s.io/v1alpha2/inferenceobjectives",
    ]
    assert [each.path for each in COLLECTIONS[Kind.REWRITE]] == [
        "/apis/llm-d.ai/v1alpha2/inferencemodelrewrites",
        "/apis/inference.networking.x-k8s.io/v1alpha2/inferencemodelrewrites",
    ]


def test_a_pods_foreign_annotations_are_dropped() -> None:
    """Network plugins write kilobytes there; ours, and those of the field, stay."""
    raw = texts.pod("p")
    raw["metadata"]["annotations"] = {
        "k8s.v1.cni.cncf.io/network-status": "x" * 4000,
        "llm-d.ai/active-ports": "8000",
        "epp-fleet.dev/x": "y",
    }
    kept = keeper(Kind.POD, PODS)(raw)
    assert isinstance(kept, Pod)
    assert kept.annotations == {"llm-d.ai/active-ports": "8000", "epp-fleet.dev/x": "y"}


def test_a_malformed_object_is_refused_by_name() -> None:
    """With field and remedy, as from a file."""
    with pytest.raises(ManifestError, match=r"InferencePool ns1/a: spec.targetPorts: no port"):
        keeper(Kind.POOL, V1)(texts.pool("a", targetPorts=[]))


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (Kind.POD, texts.pod("p")),
        (Kind.POD, texts.pod("p", ip=None, phase="Failed")),
        (Kind.POOL, texts.pool("a")),
        (Kind.OBJECTIVE, texts.objective("a")),
        (Kind.REWRITE, texts.rewrite("a")),
    ],
)
def test_decoding_only_what_is_kept_changes_nothing(kind: Kind, raw: texts.Raw) -> None:
    """The fact is the same as that of the whole object, as events bring it."""
    raw["metadata"] |= {
        "uid": "u",
        "resourceVersion": "5",
        "creationTimestamp": "2026-01-31T12:00:00Z",
        "managedFields": [{"manager": "kubelet"}],
        "annotations": {"epp-fleet.dev/x": "y"},
    }
    keep = keeper(kind, COLLECTIONS[kind][0])
    item = msgspec.Raw(json.dumps(without_head({**raw, "extra": [1]})).encode())
    decoded = decoder(kind)(item)
    assert keep(decoded) == keep(raw)
    assert (key_of(decoded), version_of(decoded)) == (key_of(raw), "5")
    assert "managedFields" not in decoded["metadata"]


def test_a_deleted_pod_is_seen_in_a_list() -> None:
    """`deletionTimestamp` is kept: a pod that is being deleted is not ready."""
    raw = texts.pod("p")
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    decoded = decoder(Kind.POD)(msgspec.Raw(json.dumps(raw).encode()))
    kept = keeper(Kind.POD, PODS)(decoded)
    assert isinstance(kept, Pod)
    assert not kept.ready

"""A pod's active ports, engine and time of readiness, from manifest to endpoints."""

from datetime import UTC, datetime
from typing import Any

import pytest

from fleet.model import Endpoint, GroupKey, Pod, Pool, PoolRef, endpoints_of
from fleet.sources.identify import identify
from fleet.sources.parse import parse
from tests import manifest_texts as texts

NEW, OLD = "llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"
ENGINE, OLD_ENGINE = "llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"
POOL = Pool(
    PoolRef("ns1", "p"), "u", {"app": "pool-a"}, (8000, 8001, 8002), GroupKey("ns1", "epp", 9002)
)


def read(raw: dict[str, Any]) -> Pod:
    identity = identify(raw)
    assert identity is not None
    pod = parse(identity, raw)  # type: ignore[arg-type]
    assert isinstance(pod, Pod)
    return pod


def pod(annotations: dict[str, str], labels: dict[str, str] | None = None) -> Pod:
    raw = texts.pod(labels={"app": "pool-a"} | (labels or {}))
    raw["metadata"]["annotations"] = annotations
    return read(raw)


def ranks(pod: Pod) -> list[tuple[int, str]]:
    return [(e.rank, e.address.rpartition(":")[2]) for e in endpoints_of(POOL, [pod])]


ALL = [(0, "8000"), (1, "8001"), (2, "8002")]


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, ALL),
        ({NEW: "8000"}, ALL[:1]),
        ({NEW: " 8002, 8001,"}, ALL[1:]),
        ({OLD: "8001"}, ALL[1:2]),
        ({NEW: "8002", OLD: "8001"}, ALL[2:]),
        ({NEW: "8000,8000,9999"}, ALL[:1]),
        ({NEW: "9999"}, []),
        ({NEW: ""}, []),
    ],
)
def test_only_active_ports_are_endpoints(
    annotations: dict[str, str], expected: list[tuple[int, str]]
) -> None:
    """Ranks stay those of the pool's list; a port that the pool has not is none of its endpoints;
    an empty list means that no rank is up yet (inference-extension#2306)."""
    found = pod(annotations)
    assert ranks(found) == expected
    assert found.fault == ""


@pytest.mark.parametrize(
    ("text", "expected", "named"),
    [
        ("8001,x", ALL[1:2], "'x'"),
        ("x", ALL, "'x'"),
        ("0", ALL, "'0'"),
        ("70000,8000", ALL[:1], "'70000'"),
        ("-1,8000", ALL[:1], "'-1'"),
        ("8000;8001", ALL, "'8000;8001'"),
        ("8000,\u0661", ALL[:1], "'\u0661'"),
        (",".join(["8001"] * 70), ALL[1:2], "'8001,8001,8001,8001,8001,8001'"),
    ],
)
def test_bad_ports_are_told_of_and_ignored(
    text: str, expected: list[tuple[int, str]], named: str
) -> None:
    """With nothing good beside them, all ports are active: a slip of the pen takes no pod away."""
    found = pod({NEW: text})
    assert ranks(found) == expected
    assert found.fault == (
        f"Pod ns1/pod-0: metadata.annotations[{NEW}]: {named} is no port; "
        "give ports from 1 to 65535 with commas between"
    )


@pytest.mark.parametrize(
    ("labels", "engine"),
    [
        ({}, ""),
        ({ENGINE: "sglang"}, "sglang"),
        ({OLD_ENGINE: "triton"}, "triton"),
        ({ENGINE: "sglang", OLD_ENGINE: "triton"}, "sglang"),
        ({ENGINE: "", OLD_ENGINE: "triton"}, "triton"),
    ],
)
def test_the_engine_is_that_of_the_label(labels: dict[str, str], engine: str) -> None:
    """The newer label first; every endpoint of the pod carries it."""
    found: tuple[Endpoint, ...] = endpoints_of(POOL, [pod({}, labels)])
    assert [each.engine for each in found] == [engine] * 3


@pytest.mark.parametrize(
    ("time", "ready", "expected"),
    [
        ("2026-01-01T00:00:00Z", "True", "2026-01-01T00:00:00Z"),
        (datetime(2026, 1, 1, tzinfo=UTC), "True", "2026-01-01 00:00:00+00:00"),
        (None, "True", ""),
        (17, "True", ""),
        ("2026-01-01T00:00:00Z" * 9, "True", "2026-01-01T00:00:00Z" * 2),
        ("2026-01-01T00:00:00Z", "False", ""),
    ],
)
def test_the_time_of_readiness_tells_two_of_them_apart(
    time: object, ready: str, expected: str
) -> None:
    """As the condition says it, in YAML's own type too; only for who is ready."""
    raw = texts.pod(ready=ready)
    raw["status"]["conditions"][0]["lastTransitionTime"] = time
    found = read(raw)
    assert found.ready_since == expected
    assert [each.ready_since for each in endpoints_of(POOL, [found])] == (
        [expected] * 3 if ready == "True" else []
    )

"""Which kinds of source, routes and election a fleet has."""

import subprocess
import sys

import pytest

from fleet.errors import SettingsError
from fleet.settings import Settings, load_settings
from fleet.settings.checks import check_process
from fleet.settings.kinds import Kinds, kinds_of, lease_ttl_seconds

FOLDER = {"source.manifests": "/m"}
FOLDER_AND_EDS = {**FOLDER, "routes.eds_directory": "/eds"}


def settings(flags: dict[str, str]) -> Settings:
    return load_settings(None, {}, flags)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, Kinds("kubernetes", "endpointslices", "kubernetes")),
        (FOLDER_AND_EDS, Kinds("manifests", "eds", "redis")),
        ({"routes.eds_directory": "/eds"}, Kinds("kubernetes", "eds", "kubernetes")),
        ({"election.kind": "redis"}, Kinds("kubernetes", "endpointslices", "redis")),
        (
            {**FOLDER_AND_EDS, "election.kind": "kubernetes"},
            Kinds("manifests", "eds", "kubernetes"),
        ),
        (
            {
                "source.kind": "kubernetes",
                "routes.kind": "endpointslices",
                "election.kind": "kubernetes",
            },
            Kinds("kubernetes", "endpointslices", "kubernetes"),
        ),
    ],
)
def test_auto_follows_from_the_folders_that_are_named(
    flags: dict[str, str], expected: Kinds
) -> None:
    """A fleet in a cluster needs none of the three to be set, nor does one of folders."""
    assert kinds_of(settings(flags)) == expected


def test_only_a_fleet_of_folders_needs_no_api_server() -> None:
    """Any one of the three kinds is enough to need one."""
    assert not kinds_of(settings(FOLDER_AND_EDS)).need_api_server
    for kinds in (
        Kinds("kubernetes", "eds", "redis"),
        Kinds("manifests", "endpointslices", "redis"),
        Kinds("manifests", "eds", "kubernetes"),
    ):
        assert kinds.need_api_server


@pytest.mark.parametrize(
    ("flags", "field", "other"),
    [
        ({"source.kind": "manifests"}, "source.manifests", "source.kind is manifests"),
        (
            {**FOLDER, "source.kind": "kubernetes"},
            "source.manifests",
            "source.kind is kubernetes",
        ),
        ({"routes.kind": "eds"}, "routes.eds_directory", "routes.kind is eds"),
        (
            {"routes.kind": "endpointslices", "routes.eds_directory": "/eds"},
            "routes.eds_directory",
            "routes.kind is endpointslices",
        ),
        (
            {**FOLDER, "routes.kind": "endpointslices"},
            "routes.kind",
            "the folder source.manifests",
        ),
        (
            {"election.kind": "redis", "redis.url": "redis+sentinel://h/s"},
            "redis.min_acks",
            "set redis.min_acks: 1",
        ),
    ],
)
def test_kinds_that_do_not_go_together_name_both_fields(
    flags: dict[str, str], field: str, other: str
) -> None:
    """And say what to do."""
    with pytest.raises(SettingsError) as caught:
        settings(flags)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{field}: ")
    assert other in problem


def test_sentinels_need_acks_only_where_the_lease_is_in_redis() -> None:
    """There an epoch that no replica has would be given again; a Kubernetes Lease keeps its own."""
    by_sentinels = {"redis.url": "rediss+sentinel://h/s"}
    settings({**by_sentinels, "election.kind": "redis", "redis.min_acks": "1"})
    settings({**by_sentinels, "election.kind": "kubernetes"})


def test_a_coordinator_of_a_folder_must_know_where_gateways_read() -> None:
    """A worker of the same fleet need not."""
    found = settings({**FOLDER, "coordinator.host": "127.0.0.1", "worker.host": "127.0.0.1"})
    fields = [finding.fields for finding in check_process(found, "coordinator")]
    assert fields == [("routes.eds_directory", "source.manifests"), ("security.token_file",)]
    assert [f.fields for f in check_process(found, "worker")] == [("security.token_file",)]


def test_the_lease_lasts_as_long_as_the_chosen_kind_says() -> None:
    """2 s in Redis, 3 s in Kubernetes."""
    assert lease_ttl_seconds(settings(FOLDER_AND_EDS)) == 2.0
    assert lease_ttl_seconds(settings({})) == 3.0


def test_a_fleet_of_folders_loads_nothing_of_the_kubernetes_client() -> None:
    """It takes 0.4 s and some memory, which nobody without a cluster should pay."""
    code = (
        "import sys, coordinator.main, epp_worker.main;"
        "sys.exit(any(name.partition('.')[0] == 'kubernetes' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Certificates in the settings: all or none, and none only where there is no wire."""

from itertools import product

import pytest

from fleet.errors import SettingsError
from fleet.settings import Settings, load_settings
from fleet.settings.checks import check_process

KUBE = "kubernetes"
FILES = {
    "security.ca_file": "/run/ca.crt",
    "security.certificate_file": "/run/tls.crt",
    "security.key_file": "/run/tls.key",
}


def settings(flags: dict[str, str]) -> Settings:
    return load_settings(None, {}, {"security.token_file": "/run/token", **flags})


@pytest.mark.parametrize("given", list(product((True, False), repeat=3)))
def test_all_three_files_or_none(given: tuple[bool, ...]) -> None:
    """What is missing comes first, and what is set is named too."""
    flags = {path: value for (path, value), on in zip(FILES.items(), given, strict=True) if on}
    if len(flags) in (0, 3):
        settings(flags)
        return
    with pytest.raises(SettingsError) as caught:
        settings(flags)
    (problem,) = caught.value.problems
    first = next(path for path in FILES if path not in flags)
    assert problem.startswith(f"{first}: is empty")
    assert all(path in problem for path in FILES)
    assert problem.endswith("set all three of them or none")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_without_certificates_a_process_serves_this_machine(host: str) -> None:
    """Loopback addresses, whatever their form."""
    assert check_process(settings({"worker.host": host}), "worker") == ()


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"worker.host": "10.0.0.7"}, "worker.host"),
        ({"worker.host": "worker.example"}, "worker.host"),
        ({"worker.host": "0.0.0.0", "worker.advertise_host": "10.0.0.7"}, "worker.host"),
        ({"worker.host": "127.0.0.1", "worker.advertise_host": "::"}, "worker.advertise_host"),
        ({"worker.host": "::1", "worker.advertise_host": "10.0.0.7"}, "worker.advertise_host"),
    ],
)
def test_anything_else_needs_certificates(flags: dict[str, str], field: str) -> None:
    """The message says which settings, and how to come by certificates; with them all is well."""
    found = {
        finding.fields[0]: finding.message for finding in check_process(settings(flags), "worker")
    }
    assert all(path in found[field] for path in FILES)
    assert "epp-fleet ca init" in found[field]
    with_files = check_process(settings({**flags, **FILES}), "worker")
    assert all(finding.fields[0] != "worker.host" for finding in with_files)
    assert not any("plaintext" in finding.message for finding in with_files)


@pytest.mark.parametrize(
    ("flags", "good"),
    [
        ({}, True),
        ({"source.manifests": "/m", "routes.eds_directory": "/eds"}, False),
        ({"source.manifests": "/m", "routes.eds_directory": "/eds", "election.kind": KUBE}, True),
        ({"routes.eds_directory": "/eds", "election.kind": "redis"}, True),
        ({"source.manifests": "/m", "election.kind": "redis", "routes.kind": "auto"}, True),
    ],
)
def test_reads_are_authorized_by_a_cluster(flags: dict[str, str], good: bool) -> None:
    """Source, routes or election must be of one."""
    chosen = {**flags, "security.reads": KUBE}
    if good:
        assert settings(chosen).security.reads == KUBE
        return
    with pytest.raises(SettingsError) as caught:
        settings(chosen)
    (problem,) = caught.value.problems
    assert problem.startswith("security.reads: is kubernetes, but neither source.kind nor")
    assert settings(flags).security.reads == "open"

"""What the section `ownership` may say."""

import pytest

from fleet.errors import SettingsError
from fleet.settings import load_settings


def problems(**fields: str) -> tuple[str, ...]:
    flags = {f"ownership.{name}": value for name, value in fields.items()}
    try:
        load_settings(None, {}, flags)
    except SettingsError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"claim": "namespaces", "namespaces": "team-a, team-b"},
        {"claim": "list", "pools": "team-a/llama.v1,team-b/qwen"},
        {"claim": "selector", "selector": "team in (a,b),!legacy"},
        {"controller_name": "example.com/path/with-more_of:it"},
    ],
)
def test_good_ones(fields: dict[str, str]) -> None:
    """Each claim with the field that it needs."""
    assert problems(**fields) == ()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"controller_name": "default"},
            "ownership.controller_name: 'default' is no domain/path; write for instance "
            "epp-fleet.dev/default",
        ),
        (
            {"namespaces": "team-a"},
            "ownership.namespaces: is set, but ownership.claim is all; set ownership.claim: "
            "namespaces, or remove it",
        ),
        (
            {"claim": "list"},
            "ownership.pools: is empty, but ownership.claim is list; say what it covers",
        ),
        (
            {"claim": "namespaces", "namespaces": "team-a,Team"},
            "ownership.namespaces: 'Team' is no namespace; write team-a,team-b",
        ),
        (
            {"claim": "list", "pools": "llama"},
            "ownership.pools: 'llama' is no namespace/name; write team-a/llama,team-b/qwen",
        ),
        (
            {"claim": "selector", "selector": "team in (a"},
            "ownership.selector: 'team in (a': a ')' is missing; write a in (b,c)",
        ),
    ],
)
def test_each_fault_has_its_own_message(fields: dict[str, str], problem: str) -> None:
    """Field, fault and remedy; a field that the claim does not use is a fault, too: its writer
    believes that fewer pools are claimed than are."""
    assert problems(**fields) == (problem,)

"""Faults put into the code are found, each by an invariant that it breaks."""

import json
from typing import Any

import pytest

from tests.sim.mutations import MUTATIONS
from tests.sim.test_simulation import simulate

pytestmark = pytest.mark.timeout(600)
"""All together take about 10 s of one core."""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What became of each, by name."""
    done = simulate("--mutations", seconds=540.0)
    assert done.stdout, done.stderr[-4000:]
    outcome: dict[str, Any] = json.loads(done.stdout)
    return outcome


@pytest.mark.parametrize("name", MUTATIONS)
def test_is_found(name: str, found: dict[str, Any]) -> None:
    """By its script, and first by an invariant that this fault breaks; without the fault the very
    same run breaks none."""
    assert found[name]["invariant"] in MUTATIONS[name].breaks, found[name]
    assert found[name]["without"] is None, found[name]

"""Faults put into the code are found, each by an invariant that it breaks."""

import json

import pytest

from tests.sim.mutations import MUTATIONS
from tests.sim.test_simulation import simulate

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("name", MUTATIONS)
def test_is_found(name: str) -> None:
    """Within a bounded number of seeds, and first by an invariant that this fault breaks."""
    done = simulate("--mutation", name)
    found = json.loads(done.stdout)
    assert found["invariant"] in MUTATIONS[name].breaks, f"{found} {done.stderr[-2000:]}"

"""A whole fleet in virtual time: every invariant over many seeds; and that seeds can be replayed.

Runs are made in processes of their own, whose strings hash alike: see `tests.sim.__main__`.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(1700)
"""300 seeds take a minute of two cores; a machine that does other things beside needs longer."""


def simulate(*args: str, seconds: float = 1620.0) -> subprocess.CompletedProcess[str]:
    """`python -m tests.sim`."""
    return subprocess.run(
        [sys.executable, "-m", "tests.sim", *args],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def test_three_hundred_seeds_hold_every_invariant() -> None:
    """Whatever fails, the invariants hold and the fleet comes to rest; what does not is printed.
    A machine too slow for all of them within the time fails, too."""
    done = simulate("--seeds", "300", "--seconds", "1500")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def test_a_seed_is_the_same_run_in_every_process() -> None:
    """Same seed, same trace, callback by callback; other seeds are other runs."""
    seeds = ("3", "4", "5", "17")
    one, two = (simulate("--hashes", *seeds), simulate("--hashes", *reversed(seeds)))
    found: list[dict[str, Any]] = [json.loads(each.stdout) for each in (one, two)]
    assert found[0] == found[1]
    assert len({run[0] for run in found[0].values()}) == len(seeds)


def test_what_was_found_before_holds() -> None:
    """Scripts that found a fault in the code once."""
    done = simulate("--found")
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]

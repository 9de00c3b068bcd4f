"""Memory goes back to the system after a flood of bodies, once it is over, and not too often."""

import platform
import subprocess
import sys

from epp_worker.trimming import LEAST_BYTES, REST_SECONDS, Trimmer, allocator


def test_after_a_flood_and_not_during_it() -> None:
    """While a quarter of the peak is still held nothing happens; then once."""
    done: list[str] = []
    trimmer = Trimmer(lambda: done.append("x"))
    assert trimmer.due(0.0, LEAST_BYTES, LEAST_BYTES // 2) is None
    assert trimmer.due(1.0, 0, LEAST_BYTES // 4 + 1) is None
    call = trimmer.due(2.0, 0, 0)
    assert call is not None
    call()
    assert done == ["x"]
    assert trimmer.due(3.0, 0, 0) is None


def test_not_too_often() -> None:
    """The next flood's has to wait; it is not forgotten."""
    trimmer = Trimmer(lambda: None)
    assert trimmer.due(0.0, LEAST_BYTES, 0) is not None
    assert trimmer.due(1.0, LEAST_BYTES, 0) is None
    assert trimmer.due(REST_SECONDS, 0, 0) is not None


def test_little_is_left_alone() -> None:
    """A peak below 64 MiB, however often."""
    trimmer = Trimmer(lambda: None)
    assert all(trimmer.due(float(n), LEAST_BYTES - 1, 0) is None for n in range(100))


def test_the_allocator_can_be_asked() -> None:
    """On every system."""
    allocator()()


def test_blocks_of_bodies_are_kept_for_the_next_ones() -> None:
    """16 MiB that were free already cost no page faults: 4,096 of them otherwise, with glibc."""
    code = """
import resource
from epp_worker.trimming import allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        block = b"x" * (16 << 20)
        del block
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

mapped = faults()
allocator()
faults()
print(mapped, faults())
"""
    said = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=True
    ).stdout
    mapped, kept = map(int, said.split())
    if "glibc" in platform.libc_ver()[0]:
        assert kept < 1000 < mapped

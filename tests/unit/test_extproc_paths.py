"""Paths that clients make up."""

import tracemalloc

from epp_worker.extproc.paths import Shape, shape_of


def test_long_paths_are_not_kept() -> None:
    """A thousand of 64 KB each once stayed for ever; their endings count all the same."""
    tracemalloc.start()
    for number in range(64):
        assert shape_of(f"/{number}" + "x" * 65_536 + "/v1/chat/completions/") is Shape.CHAT
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 512 * 1024

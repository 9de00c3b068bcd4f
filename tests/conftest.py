"""For all tests: no event loop but those that pytest-asyncio runs and closes; logging as it was;
gRPC's core is quiet; Hypothesis judges no example by how long it took."""

import asyncio
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# gRPC's core writes lines of its own to stderr, past pytest's capture, when a peer says goodbye. It
# reads this when it starts; the programs set it for themselves.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# pytest-asyncio asks for the thread's current loop. Before the first call of set_event_loop Python
# would create one for it, which nobody closes, and warnings are errors.
asyncio.set_event_loop(None)

# A busy machine is no fault. With CI in the environment the parent tries the same examples always.
settings.register_profile(
    "busy", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A process' start replaces the root logger's handlers: later tests must not see that."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        if handler not in handlers:
            root.removeHandler(handler)
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.fixture(autouse=True)
def any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests may have told how wide his terminal is; tables follow that."""
    monkeypatch.delenv("COLUMNS", raising=False)

"""A stop signal before anything runs ends the process, wherever Python happens to be."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, weakref
from fleet.local.signals import stop_quietly_until_running

class Thing:
    pass

def gone(_):
    os.kill(os.getpid(), {number})
    for _ in range(1000):  # a handler runs between two steps of Python's
        pass

stop_quietly_until_running()
thing = Thing()
watch = weakref.ref(thing, gone)
del thing
print("went on")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_within_a_callback_of_pythons_own_counts(number: signal.Signals) -> None:
    """Imports have such callbacks; what is raised in them is printed and forgotten."""
    script = SCRIPT.format(number=int(number))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

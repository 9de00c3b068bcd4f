"""Ports of tests: one test process's own, and none that the kernel gives to a connection."""

import socket
import subprocess
import sys
from pathlib import Path

from fleet.local.ports import BLOCK, first_ephemeral
from tests.ports import free_port

COUNT = BLOCK + 6

_TAKES = f"""
import sys
from tests.ports import free_port
print(*[free_port() for _ in range({COUNT})], flush=True)
sys.stdin.read()
"""
_FORKS = f"""
import os, sys
from tests.ports import free_port
free_port()
child = os.fork()
said = sys.stderr if child else sys.stdout  # one for each: neither cuts in on the other
print(*[free_port() for _ in range({COUNT})], file=said, flush=True)
if child:
    os.waitpid(child, 0)
else:
    sys.stdin.read()
"""


def _process(script: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_processes_share_no_port() -> None:
    """Two others and this one, all alive, though nobody listens on any of the ports."""
    with _process(_TAKES) as one, _process(_TAKES) as two:
        found = [free_port() for _ in range(COUNT)]
        for each in (one, two):
            assert each.stdout is not None
            found += map(int, each.stdout.readline().split())
        for each in (one, two):
            each.communicate("")
    assert len(found) == len(set(found)) == 3 * COUNT


def test_a_fork_has_ports_of_its_own() -> None:
    """Its copy of its parent's list would give the same ones."""
    with _process(_FORKS) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        found = [*parent.stdout.readline().split(), *parent.stderr.readline().split()]
        parent.communicate("")
    assert len(found) == len(set(found)) == 2 * COUNT


def test_no_connection_is_given_one() -> None:
    """They are below the kernel's own choice."""
    first = first_ephemeral()
    assert all(1024 < free_port() < first for _ in range(COUNT))


def test_a_port_used_on_an_address_asked_for_is_passed_over() -> None:
    """Somebody listens there on another loopback address."""
    with socket.socket() as other:
        while other.getsockname()[1] == 0:
            try:
                other.bind(("127.0.0.2", free_port() + 1))
            except OSError:
                continue
        other.listen(1)
        assert free_port("127.0.0.2") != other.getsockname()[1]

"""A black hole for single processes of one machine: addresses that swallow all to and from them.

All of 127.0.0.0/8 is this machine. A worker that listens on an address of its own, and reaches the
store by another one of its own, is cut off from leader, gateways, peers and store once nothing is
delivered to or from these two. It notices nothing of it but silence, and so do those that it is
connected to; only who connects anew is told at once that it cannot be. Inside a network namespace
of one's own.
"""

import subprocess

VALKEY = ("--bind", "0.0.0.0", "--protected-mode", "no")
"""Arguments of a server that answers at all of these addresses."""

_SECONDS = 10.0


def addresses_of(number: int) -> tuple[str, str]:
    """What the n-th worker listens on, and by what it reaches the store."""
    return f"127.7.0.{number + 1}", f"127.8.0.{number + 1}"


def begin() -> None:
    """Let rules come before the delivery to this machine, which is the first one otherwise."""
    _rule("add prio 100 lookup local")
    _rule("del prio 0")


def swallow(address: str) -> None:
    """From now on."""
    for way in ("to", "from"):
        _rule(f"add prio 10 {way} {address} blackhole")


def _rule(words: str) -> None:
    subprocess.run(["ip", "rule", *words.split()], check=True, timeout=_SECONDS)

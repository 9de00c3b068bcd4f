"""Ports for servers that tests start, also for those that go and come back at the same address.

A port that the kernel chose, closed, and used later is anybody's in between: the next outgoing
connection may have it. So ports are taken as a fleet takes its own (`fleet.local.ports`): below the
range of the kernel's choice, from blocks that this process guards until it ends. Other test
processes and the fleets that tests start find the guard and take other blocks.
"""

import os
import random

from fleet.local.ports import Ports

_mine: dict[int, Ports] = {}  # by process: a fork has a copy of what is left of a block


def free_port(*hosts: str) -> int:
    """A port that nobody uses on 127.0.0.1 and on `hosts`; never given out again.

    It stays this process's until it ends, whether something listens there or not.

    Raises:
        PortTaken: nothing free was found.
    """
    if os.getpid() not in _mine:
        _mine[os.getpid()] = Ports(random.Random())
    return _mine[os.getpid()].take(also_on=hosts)

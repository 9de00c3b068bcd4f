"""The faults that show each fault of the code: explicit, so that no other seed has to be found when
something else changes. The dice of the network may fall badly: each script may be thrown again."""

from collections.abc import Iterator
from dataclasses import replace

from tests.sim.faults import Fault, Plan
from tests.sim.found import FOUND

THROWS = 6
"""Dice that are tried; the first ones do at present."""


def _script(
    horizon: float, *faults: Fault, lease: bool = False, groups: int = 6, workers: int = 3
) -> Plan:
    return Plan(
        seed=1,
        coordinators=2,
        workers=workers,
        groups=groups,
        files=True,
        lease=lease,
        slow_network=False,
        horizon=horizon,
        faults=faults,
    )


def throws(script: Plan) -> Iterator[Plan]:
    """The script as it is, then with other dice."""
    yield script
    yield from (replace(script, seed=seed) for seed in range(1, THROWS + 1) if seed != script.seed)


def _parts() -> Plan:
    """Many groups: a drain and its end change a few at each worker."""
    return _script(
        12.0,
        Fault(7.0, "worker drains", 0, 2.0),
        Fault(10.0, "worker drains", 1, 1.0),
        workers=5,
        groups=24,
    )


SCRIPTS: dict[str, Plan] = {
    "epoch from its home alone": _script(
        13.0, Fault(7.0, "crash leader", 0, 4.0), Fault(7.1, "store restarts empty", 0, 0.3)
    ),
    "lease released before the work stops": _script(10.0, Fault(7.0, "stop leader", 0, 2.0)),
    "deadline of the lease not looked at": _script(13.0, Fault(7.0, "pause leader", 0, 4.0)),
    "renewals that no replica has": _script(
        12.0,
        Fault(7.0, "store fails over", 0, 2.3),
        Fault(9.0, "cut leader from store", 2, 1.5),
    ),
    "an emptied home is free": _script(
        11.0, Fault(7.0, "pause leader", 0, 1.5), Fault(7.6, "store emptied")
    ),
    "absent from the store is dead": _script(10.0, Fault(7.0, "store emptied")),
    "first map without settling": _script(
        14.0,
        Fault(8.0, "store restarts empty", 0, 0.8),
        Fault(8.1, "crash coordinator", 0, 0.4),
        Fault(8.2, "crash coordinator", 0, 0.4),
        groups=16,
    ),
    "break before make": _script(
        12.0,
        Fault(7.0, "worker drains", 0, 4.0),
        Fault(7.0, "worker drains", 1, 4.0),
        workers=4,
        groups=12,
    ),
    "one silent channel kills": _script(12.0, Fault(7.0, "cut leader from worker", 2, 4.0)),
    "unknown beats are silence": _script(
        14.0,
        Fault(7.0, "store down", 0, 6.0),
        Fault(8.0, "cut leader from worker", 2, 2.0),
        lease=True,
    ),
    "a worker is its name": _script(
        12.0, Fault(7.0, "vanish leader", 0, 2.4), Fault(7.9, "crash worker", 0, 0.7)
    ),
    "who came back inherits by name": _script(
        12.0, Fault(7.0, "vanish leader", 0, 0.7), Fault(7.5, "vanish worker", 0, 0.3)
    ),
    "who heard the leader is newer than the map": FOUND[
        "what peers remembered of who a worker was won over the map"
    ],
    # A map goes to the workers at once and to a store that forgets it; then nobody leads, and
    # workers read what is left in the store.
    "worker takes a lower epoch": _script(
        18.0,
        Fault(7.0, "crash leader", 0, 8.0),
        Fault(7.1, "store fails over", 0, 6.0),
        Fault(12.5, "crash leader", 0, 4.0),
        lease=True,
    ),
    "worker takes an older share": _script(
        14.0,
        Fault(7.0, "store fails over", 0, 1.5),
        Fault(7.2, "worker drains", 0, 5.0),
        Fault(8.3, "crash leader", 0, 4.0),
        lease=True,
    ),
    "routes never looked at again": _script(10.0, Fault(7.0, "stale route", 1)),
    "routes written without a fence": _script(
        20.0,
        Fault(8.0, "routes slow", 9, 9.0),
        Fault(8.5, "crash worker", 0, 6.0),
        Fault(8.8, "pause leader", 0, 5.0),
        groups=16,
    ),
    "warm stand-by passed over": _script(
        14.0,
        Fault(7.0, "worker joins"),
        Fault(8.0, "worker joins"),
        Fault(9.0, "crash worker", 0, 2.0),
        groups=12,
    ),
    "drain ends before the hand-over": _script(
        12.0,
        Fault(6.9, "cut leader from workers", 2, 3.0),
        Fault(7.0, "worker leaves"),
        groups=12,
    ),
    "nobody is sent away": _script(11.0, Fault(7.0, "worker leaves")),
    "the dead go on as who they were": _script(14.0, Fault(7.0, "pause worker", 0, 5.0)),
    "picks among all pods": _script(7.0),
    "part taken on a wrong base": _parts(),
    "part that forgets what is gone": _parts(),
    "part that forgets what changed": _parts(),
    "lost groups dropped at once": _script(
        12.0,
        Fault(7.0, "worker drains", 0, 4.0),
        Fault(7.0, "worker drains", 1, 4.0),
        workers=5,
        groups=12,
    ),
}

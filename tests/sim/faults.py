"""What goes wrong, and when: a script of faults, made from a seed and printed for people."""

import random
from dataclasses import dataclass, field

FIRST_FAULT_SECONDS = 5.0
"""The fleet has started and settled by then."""

COORDINATION = "coordination"
WORKER = "worker"
PLANNED = "planned"

KINDS: dict[str, tuple[str, float]] = {
    "crash worker": (WORKER, 3.0),
    "vanish worker": (WORKER, 1.5),
    "pause worker": (WORKER, 2.0),
    "worker moves": (WORKER, 1.0),
    "crash leader": (COORDINATION, 2.0),
    "vanish leader": (COORDINATION, 1.0),
    "pause leader": (COORDINATION, 3.0),
    "crash coordinator": (COORDINATION, 0.7),
    "stop leader": (COORDINATION, 1.0),
    "cut leader from store": (COORDINATION, 1.5),
    "cut leader from routes": (COORDINATION, 1.0),
    "cut leader from worker": (COORDINATION, 1.5),
    "cut leader from workers": (COORDINATION, 1.0),
    "cut coordinators": (COORDINATION, 0.5),
    "cut worker from store": (COORDINATION, 1.0),
    "cut worker off": (WORKER, 1.5),
    "store down": (COORDINATION, 1.5),
    "store hangs": (COORDINATION, 1.0),
    "store restarts empty": (COORDINATION, 1.0),
    "store emptied": (COORDINATION, 1.0),
    "store fails over": (COORDINATION, 1.5),
    "routes slow": (COORDINATION, 1.0),
    "stale route": (COORDINATION, 1.5),
    "wall clock steps": (PLANNED, 0.7),
    "worker joins": (PLANNED, 1.5),
    "worker leaves": (PLANNED, 1.5),
    "worker drains": (PLANNED, 1.5),
    "pool comes": (PLANNED, 0.7),
    "pool goes": (PLANNED, 0.7),
}
"""Every kind of fault: whom it concerns, and how often it is drawn."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        at: seconds since the run began.
        which: chooses among processes, groups or directions, by remainder.
        seconds: until it is over; of a crash, until the restart.
    """

    at: float
    kind: str
    which: int = 0
    seconds: float = 0.0

    @property
    def concerns(self) -> str:
        return KINDS[self.kind][0]

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.2f} s" if self.seconds else ""
        return f"{self.at:7.2f}  {self.kind} #{self.which}{lasts}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run, but for the dice of the network.

    Attributes:
        files: routes are files, else slices.
        lease: the lease is a Kubernetes Lease, else in the store.
        horizon: when the last fault is over.
    """

    seed: int
    coordinators: int
    workers: int
    groups: int
    files: bool
    lease: bool
    slow_network: bool
    horizon: float
    faults: tuple[Fault, ...] = field(default=())

    def __str__(self) -> str:
        home = "Kubernetes Lease" if self.lease else "store"
        kind = "files" if self.files else "slices"
        speed = "slow" if self.slow_network else "fast"
        head = (
            f"seed {self.seed}: {self.coordinators} coordinators, {self.workers} workers, "
            f"{self.groups} groups; lease: {home}; routes: {kind}; network: {speed}; "
            f"faults end at {self.horizon:.1f} s"
        )
        return "\n".join([head, *(f"  {fault}" for fault in self.faults)])


def _seconds(rng: random.Random, kind: str) -> float:
    """How long a fault of this kind lasts."""
    if kind in ("store emptied", "stale route", "wall clock steps", "worker joins"):
        return 0.0
    if kind in ("worker leaves", "pool comes", "pool goes"):
        return 0.0
    if kind in ("store fails over", "store restarts empty"):
        return round(rng.uniform(0.1, 2.0), 2)
    if kind.startswith("crash") or kind == "worker moves":
        return round(rng.choice((rng.uniform(0.2, 1.5), rng.uniform(1.5, 8.0))), 2)
    return round(rng.uniform(0.2, 6.0), 2)


def make_plan(seed: int, *, leases: bool = True) -> Plan:
    """The run of a seed."""
    rng = random.Random(seed)
    length = rng.uniform(8.0, 18.0)
    horizon = FIRST_FAULT_SECONDS + length
    names, weights = zip(*((kind, weight) for kind, (_, weight) in KINDS.items()), strict=True)
    count = rng.choice((1, 2, 3, 3, 4, 5, 6, 8))
    faults = []
    for _ in range(count):
        (kind,) = rng.choices(names, weights)
        at = round(rng.uniform(FIRST_FAULT_SECONDS, horizon - 1.0), 2)
        seconds = min(_seconds(rng, kind), round(horizon - at, 2))
        faults.append(Fault(at, kind, rng.randrange(1000), seconds))
    return Plan(
        seed=seed,
        coordinators=rng.choice((2, 2, 3)),
        workers=rng.choice((3, 3, 4, 5)),
        groups=rng.randrange(8, 19),
        files=rng.random() < 0.5,
        lease=leases and rng.random() < 0.3,
        slow_network=rng.random() < 0.25,
        horizon=round(horizon, 2),
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
    )

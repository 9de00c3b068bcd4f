"""What happened in a run: a hash of all of it, the last of it, faults by whom they concern."""

import hashlib
from collections import deque
from dataclasses import dataclass

from tests.sim.loop import World

TAIL = 60


@dataclass(frozen=True, slots=True)
class Violation:
    """An invariant that broke."""

    invariant: str
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.invariant} broke at {self.at:.3f} s: {self.what}"


class Tape:
    """Written by everybody."""

    def __init__(self, *, keep: int = TAIL) -> None:
        self.world: World
        self.violation: Violation | None = None
        self.tail: deque[str] = deque(maxlen=keep)
        self.faults: list[tuple[str, float, float]] = []
        self._hash = hashlib.sha256()

    def note(self, what: str) -> None:
        """Something that two runs of a seed must have in common."""
        line = f"{self.world.now:8.3f}  {what}"
        self._hash.update(line.encode())
        self.tail.append(line)

    def fault(self, concerns: str, what: str, seconds: float) -> None:
        """A fault begins."""
        self.faults.append((concerns, self.world.now, self.world.now + seconds))
        self.note(f"FAULT {what} ({seconds:.2f} s)")

    def since(self, concerns: str, at: float) -> float:
        """Seconds between the last moment of a fault of this kind up to `at`, and `at`."""
        found = float("inf")
        for kind, begin, end in self.faults:
            if kind == concerns and begin <= at:
                found = min(found, max(0.0, at - end))
        return found

    def break_(self, invariant: str, what: str) -> None:
        """The first one counts."""
        if self.violation is None:
            self.violation = Violation(invariant, self.world.now, what)
            self.note(f"VIOLATION {invariant}: {what}")

    def hash(self) -> str:
        return self._hash.hexdigest()[:16]

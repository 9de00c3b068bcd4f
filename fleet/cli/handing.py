"""How far workers are with handing their pools over: pure, from what a coordinator says."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fleet.cli.fetching import Snapshot

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Left:
    """What one worker still has.

    Attributes:
        state: "gone" once the coordinators know it no more.
        pools: that it owns.
        strays: pools that it handed over and keeps until no stream has strayed to it for a while
            (`worker.quiet_seconds`).
        streams_open: ext_proc streams; None = the coordinators do not say.
    """

    worker: str
    state: str
    pools: int
    strays: int
    streams_open: int | None

    def document(self) -> dict[str, Any]:
        """As JSON members."""
        return asdict(self)

    @property
    def handed_over(self) -> bool:
        """Nothing is left to wait for, and it is not for its death."""
        return self.state == "draining" and not self.pools and not self.strays

    @property
    def lost(self) -> bool:
        """It died, or is known no more: its pools failed over."""
        return self.state in ("dead", "gone")

    def text(self) -> str:
        """For people."""
        if self.lost:
            return f"{self.state}: its pools failed over"
        parts = [_plural(self.pools, "pool") + " left"]
        if self.strays:
            parts.append(f"{self.strays} handed over and kept for stray streams")
        if self.streams_open is not None:
            parts.append(f"{_plural(self.streams_open, 'stream')} open")
        return ", ".join(parts)


def left(snapshot: Snapshot, worker: str) -> Left:
    """Of one worker."""
    pools = snapshot.shard_map["pools"]
    known: Sequence[Json] = [each for each in snapshot.workers if each["id"] == worker]
    state = str(known[-1]["state"]) if known else "gone"
    streams = known[-1].get("streams_open") if known else None
    return Left(
        worker,
        state,
        sum(1 for pool in pools if worker in pool["owners"]),
        sum(1 for pool in pools if worker in pool.get("draining", ())),
        streams if isinstance(streams, int) else None,
    )


def others_can(workers: Iterable[Json], leaving: Sequence[str]) -> bool:
    """Whether anybody is there to take the pools."""
    return any(each["id"] not in leaving and each["state"] == "alive" for each in workers)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

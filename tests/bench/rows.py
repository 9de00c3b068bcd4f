"""Rows of the performance table, and how times are taken."""

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

_VERDICT = {True: "met", False: "MISSED", None: ""}


@dataclass(frozen=True, slots=True)
class Row:
    """A measured figure.

    Attributes:
        target: what it must not exceed (or reach, if `at_least`); None if it is only told.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without one."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def line(self) -> str:
        """For people."""
        target = "" if self.target is None else f"{'>=' if self.at_least else '<='} {self.target:g}"
        verdict = _VERDICT[self.met]
        return f"{self.name:<44} {self.value:>12,.2f} {self.unit:<10} {target:>12}  {verdict}"

    def json(self) -> dict[str, object]:
        """For programs."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "target": self.target,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class StreamsRow:
    """A kind of load, and how it went: medians of some runs.

    Attributes:
        cpu_us: of the server, per stream.
        p50_ms: from the instant a stream was due to the answers to its request.
        ratio_to_baseline: streams/s (or, where the rate is given, CPU of the baseline) over those
            of the same load on the baseline in the same runs; None without one.
        limit: what kept it from more.
        also: more figures, by name.
    """

    name: str
    streams_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    ratio_to_baseline: float | None = None
    limit: str = ""
    also: Mapping[str, float] = field(default_factory=dict)

    def line(self) -> str:
        """For people."""
        ratio = "" if self.ratio_to_baseline is None else f"{self.ratio_to_baseline:.1f}x"
        more = [f"{name} {value:,.2f}" for name, value in self.also.items()]
        return (
            f"{self.name:<44} {self.streams_per_s:>8,.0f}/s {self.cpu_us:>7,.1f} us"
            f" {self.p50_ms:>8.2f} {self.p99_ms:>8.2f} ms {ratio:>7}  "
            + "; ".join([*more, *([f"limit: {self.limit}"] if self.limit else [])])
        )

    def json(self) -> dict[str, object]:
        """For programs."""
        return asdict(self)


def median_ms(work: Callable[[], object], *, runs: int = 7) -> float:
    """Median wall time of `runs` calls after one to warm up, in milliseconds."""
    work()
    times = []
    for _ in range(runs):
        gc.collect()
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3

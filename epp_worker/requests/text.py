"""Writes metric families as text, format 0.0.4.

A worker with a thousand pools has a hundred thousand lines. Written one by one from sample objects
they take a second; here the lines of one histogram are one template.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate

from epp_worker.scheduling.prefix.figures import Histogram

_LABELS = "\0"
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"', "%": "%%", "\0": "\ufffd"})


@lru_cache(maxsize=65_536)
def escaped(value: str) -> str:
    """A label's value as it stands between quotes in `labels`."""
    return value.translate(_ESCAPES)


def labels(**values: str) -> str:
    """Labels as the functions below want them."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in values.items())


def joined(*parts: str) -> str:
    """Labels of several texts, some of which may be empty."""
    return ",".join(filter(None, parts))


class Family:
    """One family of counters or gauges."""

    def __init__(self, name: str, kind: str, text: str) -> None:
        self.head = f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        self._name = name

    def write(self, samples: Iterable[tuple[str, float]]) -> str:
        """The family with its samples, each by its labels; "" without any."""
        name = self._name
        lines = "".join([f"{name}{{{text}}} {value}\n" for text, value in samples])
        if "%%" in lines:  # as `escaped` has it, for the templates of histograms
            lines = lines.replace("%%", "%")
        return self.head + lines if lines else ""


class HistogramFamily:
    """One family of histograms with the same buckets."""

    def __init__(self, name: str, bounds: Sequence[float], text: str) -> None:
        self.head = f"# HELP {name} {text}\n# TYPE {name} histogram\n"
        ends = [str(float(bound)) for bound in bounds] + ["+Inf"]
        buckets = "".join(f'{name}_bucket{{{_LABELS},le="{end}"}} %d\n' for end in ends)
        lines = f"{buckets}{name}_sum{{{_LABELS}}} %s\n{name}_count{{{_LABELS}}} %d\n"
        self._between = lines.split(_LABELS)

    def write(self, samples: Iterable[tuple[str, Histogram]]) -> str:
        """The family with its samples, each by its labels; "" without any."""
        lines = [self._one(text, histogram) for text, histogram in samples]
        return self.head + "".join(lines) if lines else ""

    def _one(self, text: str, histogram: Histogram) -> str:
        total = histogram.total
        below = tuple(accumulate(tuple(histogram.counts)))  # another thread counts on
        return text.join(self._between) % (*below, total, below[-1])

"""How often prefixes were found: the llm-d router's histograms, by their names and bounds."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fleet.model.identity import PoolRef

RATIO_BOUNDS: Final = tuple(tenth / 10 for tenth in range(11))
BYTES_BOUNDS: Final = (0, *(2**power for power in range(4, 17)))
TEXT_TOKEN_BYTES: Final = 4


class Histogram:
    """Counts by upper bound; the last one is of what lies above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def copy(self) -> "Histogram":
        """As it is now."""
        other = Histogram(self.bounds)
        other.counts = list(self.counts)
        other.total = self.total
        return other

    def buckets(self) -> list[tuple[str, float]]:
        """How many lie at or below each bound, as Prometheus wants them."""
        found: list[tuple[str, float]] = []
        below = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), below))
        return found


class PrefixFigures:
    """Of all producers of one name.

    Attributes:
        ratio: blocks that the chosen endpoint had, of all blocks of the prompt.
        length: likewise in bytes of text.
    """

    __slots__ = ("length", "ratio")

    def __init__(self) -> None:
        self.ratio = Histogram(RATIO_BOUNDS)
        self.length = Histogram(BYTES_BOUNDS)

    def count(self, found: int, blocks: int, block_tokens: int) -> None:
        """One pick whose prompt has `blocks`, of which the chosen endpoint had `found`."""
        self.ratio.observe(found / blocks)
        self.length.observe(found * block_tokens * TEXT_TOKEN_BYTES)

    def copy(self) -> "PrefixFigures":
        """As they are now."""
        other = PrefixFigures()
        other.ratio, other.length = self.ratio.copy(), self.length.copy()
        return other


MAX_NAMES = 64
"""Names of producers that are told apart; further ones count as `other`."""
OTHER = "other"


class FiguresByName:
    """Of all producers of a worker, by the name of the instance."""

    def __init__(self) -> None:
        self._of: dict[str, PrefixFigures] = {}

    def of(self, name: str) -> PrefixFigures:
        """Those of a name."""
        if name not in self._of and len(self._of) >= MAX_NAMES:
            name = OTHER
        return self._of.setdefault(name, PrefixFigures())

    def __iter__(self) -> Iterator[tuple[str, PrefixFigures]]:
        """All, copied."""
        return iter([(name, figures.copy()) for name, figures in self._of.items()])


@dataclass(frozen=True, slots=True)
class PrefixPage:
    """All numbers of one moment.

    Attributes:
        blocks: in the index of each pool that has one.
        used: estimated bytes of all indexes.
        found: by the name of the producer.
    """

    blocks: Mapping[PoolRef, int] = field(default_factory=dict)
    used: int = 0
    found: Mapping[str, PrefixFigures] = field(default_factory=dict)

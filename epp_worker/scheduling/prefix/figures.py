"""How often prefixes were found: the llm-d router's histograms, by their names and bounds."""

from bisect import bisect_left
from typing import Final

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


class PrefixFigures:
    """Of one producer.

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

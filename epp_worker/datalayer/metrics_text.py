"""What a pick needs of a vLLM metrics page, without parsing the page.

A page has 40-50 kB and hundreds of series; four families matter. They are looked up by name in
whole lines as the bytes arrive, so a page costs microseconds where a full parser takes
milliseconds, and a page of any size never holds more than one piece of it in memory.

Rules: several engines behind one port (data parallelism) count together, queues summed and the
fullest KV cache taken. `kv_cache_usage_perc` wins over its older name `gpu_cache_usage_perc`
(vllm#18354). A value that is not finite or out of range is dropped and counted, so one bad series
does not poison the others. A page that does not end with a newline was cut short, and a cut number
still looks like a number, so such a page is no page.
"""

import math
from dataclasses import dataclass

WAITING = b"vllm:num_requests_waiting"
RUNNING = b"vllm:num_requests_running"
KV = b"vllm:kv_cache_usage_perc"
KV_OLD = b"vllm:gpu_cache_usage_perc"
_FAMILIES = (WAITING, RUNNING, KV, KV_OLD)

MAX_LINE_BYTES = 64 * 1024
"""A longer line is no metrics page."""


class BadPage(ValueError):
    """The page cannot be used as a whole."""


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """What one endpoint reports.

    Attributes:
        waiting: queued requests; None = not on the page.
        running: requests being computed; None = not on the page.
        kv: KV cache in use, 0..1; None = not on the page.
        dropped: samples of these families with an impossible value.
    """

    waiting: float | None
    running: float | None
    kv: float | None
    dropped: int


class PageReader:
    """Reads a page piece by piece."""

    __slots__ = ("_carry", "_dropped", "_values")

    def __init__(self) -> None:
        self._carry = b""
        self._dropped = 0
        self._values: dict[bytes, float] = {}

    def feed(self, piece: bytes) -> None:
        """Take the next bytes.

        Raises:
            BadPage: a line has no end.
        """
        data = self._carry + piece if self._carry else piece
        end = data.rfind(b"\n") + 1
        if len(data) - end > MAX_LINE_BYTES:
            raise BadPage(f"a line is longer than {MAX_LINE_BYTES} bytes")
        self._carry = data[end:]
        for family in _FAMILIES:
            self._scan(family, data, end)

    def finish(self) -> EngineMetrics:
        """The page is complete.

        Raises:
            BadPage: its last line has no end: cut short.
        """
        if self._carry:
            raise BadPage("the last line has no newline: the page was cut short")
        values = self._values
        return EngineMetrics(
            waiting=values.get(WAITING),
            running=values.get(RUNNING),
            kv=values.get(KV, values.get(KV_OLD)),
            dropped=self._dropped,
        )

    def _scan(self, family: bytes, data: bytes, end: int) -> None:
        at = data.find(family, 0, end)
        while at >= 0:
            stop = data.find(b"\n", at, end)
            if not data[data.rfind(b"\n", 0, at) + 1 : at].strip(b" \t"):
                self._sample(family, data[at + len(family) : stop])
            at = data.find(family, stop, end)

    def _sample(self, family: bytes, rest: bytes) -> None:
        text = _after_labels(rest)
        if text is None:
            return
        value = _number(text)
        most = 1.0 if family in (KV, KV_OLD) else math.inf
        if value is None or not (0.0 <= value <= most and math.isfinite(value)):
            self._dropped += 1
            return
        known = self._values.get(family)
        if known is not None:
            value = max(known, value) if most == 1.0 else known + value
        self._values[family] = value


def read_page(page: bytes) -> EngineMetrics:
    """A whole page at once; see `PageReader`.

    Raises:
        BadPage: cut short, or not lines of text.
    """
    reader = PageReader()
    reader.feed(page)
    return reader.finish()


def _after_labels(rest: bytes) -> bytes | None:
    """Value (and timestamp) of a sample, given what follows the family's name; None if the name
    goes on, so that it is another family."""
    if rest[:1] not in (b"{", b" ", b"\t"):
        return None
    rest = rest.lstrip(b" \t")
    if rest[:1] != b"{":
        return rest
    at, close = 1, 0
    while True:
        if close < at:  # looked for again only if it stood in a label's value: linear in the line
            close = rest.find(b"}", at)
            if close < 0:
                return b""
        quote = rest.find(b'"', at, close)
        if quote < 0:
            return rest[close + 1 :]
        at = _closing_quote(rest, quote + 1) + 1
        if at == 0:
            return b""


def _closing_quote(text: bytes, at: int) -> int:
    """Where the label value that begins at `at` ends; -1 = nowhere."""
    while True:
        quote = text.find(b'"', at)
        if quote < 0:
            return -1
        slashes = len(text[at:quote]) - len(text[at:quote].rstrip(b"\\"))
        if slashes % 2 == 0:
            return quote
        at = quote + 1


def _number(text: bytes) -> float | None:
    parts = text.split(None, 1)
    if not parts or b"_" in parts[0]:  # Python's float takes 1_000, Prometheus does not
        return None
    try:
        return float(parts[0])
    except ValueError:
        return None

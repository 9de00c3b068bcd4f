"""What a pick needs of a model server's metrics page, without parsing the page.

A page has 40-50 kB and hundreds of series; half a dozen families matter (see `engines`). They are
looked up by name in whole lines as the bytes arrive, so a page costs tens of microseconds where a
full parser takes milliseconds, and a page of any size never holds more than one piece of it in
memory.

A value that is not finite or out of range is dropped and counted, so one bad series does not poison
the others. Whatever a page lacks is unknown; the other values count all the same. The type that a
page gives its families is not looked at. A page that does not end with a newline was cut short, and
a cut number still looks like a number, so such a page is no page.
"""

import itertools
import math
import sys
from typing import NamedTuple

from epp_worker.datalayer.engines import VLLM, Combine, Engine, Family, Quantity
from epp_worker.datalayer.samples import labels_of, split_sample, value_of
from epp_worker.scheduling.endpoint import NO_ADAPTERS

MAX_LINE_BYTES = 64 * 1024
"""A longer line is no metrics page."""

MAX_ADAPTERS = 1024
"""LoRA adapters that are kept of one endpoint; engines run some dozens."""

MAX_REPLICAS = 1024
"""Data-parallel ranks of one endpoint; samples of more are dropped and counted."""

FULL_EVERY = 16
"""Every so many pages all of the page is searched: at the shortest interval once in 0.8 s."""

_GAP_BYTES = 2048
_REMEMBERED_BYTES = 2048
_NEWLINE, _COMMENT = b"\n#"
_MOST = sys.float_info.max


class BadPage(ValueError):
    """The page cannot be used as a whole."""


class EngineMetrics(NamedTuple):
    """What one endpoint reports; None = not on the page.

    Attributes:
        waiting: queued requests.
        running: requests being computed.
        kv: KV cache in use, 0..1.
        dropped: samples of these families with an impossible value.
        lora_running: adapters that requests are being computed with.
        lora_waiting: adapters that requests wait for.
        lora_max: adapters that may run at once.
        block_size: tokens in a block of the KV cache.
        blocks: blocks that the KV cache has.
    """

    waiting: float | None
    running: float | None
    kv: float | None
    dropped: int
    lora_running: frozenset[str] = NO_ADAPTERS
    lora_waiting: frozenset[str] = NO_ADAPTERS
    lora_max: int | None = None
    block_size: int | None = None
    blocks: int | None = None


class _Infos(NamedTuple):
    """The part of `EngineMetrics` that labels tell."""

    lora_running: frozenset[str] = NO_ADAPTERS
    lora_waiting: frozenset[str] = NO_ADAPTERS
    lora_max: int | None = None
    block_size: int | None = None
    blocks: int | None = None


class Layout:
    """Where the last page of an endpoint had what was looked for.

    Pages keep their shape: searched where each thing stood last, one of 49 kB costs 35 us instead
    of 85. What stands elsewhere than before is found by the full search of every `FULL_EVERY`th
    page, and of any page that has less, or more, at the known places.

    Attributes:
        texts: labels of the last page's infos, if they are not long; `infos`: what they say.
    """

    __slots__ = ("_engine", "_pages", "_places", "infos", "texts")

    def __init__(self) -> None:
        self.texts = (b"", b"")
        self.infos = _Infos()
        self._engine: Engine | None = None
        self._pages = 0
        self._places: dict[bytes, tuple[int, int]] | None = None

    def places(self, engine: Engine) -> dict[bytes, tuple[int, int]] | None:
        """By needle: offset of the first line and number of lines; None = do a full search."""
        self._pages += 1
        if engine is not self._engine or self._pages >= FULL_EVERY:
            return None
        return self._places

    def learn(self, engine: Engine, begin: int, hits: dict[bytes, list[int]]) -> None:
        """Note what a full search of a page that begins at `begin` found."""
        if engine is not self._engine:
            self.texts, self.infos = (b"", b""), _Infos()
        self._engine = engine
        self._pages = 0
        apart = any(b - a > _GAP_BYTES for at in hits.values() for a, b in itertools.pairwise(at))
        places = {needle: (at[0] - begin, len(at)) for needle, at in hits.items() if at}
        self._places = None if apart else places


class PageReader:
    """Reads one page: piece by piece (`feed`), or at once (`read`), then with the help of `layout`
    if there is one."""

    __slots__ = (
        "_cache",
        "_carry",
        "_dropped",
        "_engine",
        "_layout",
        "_lora",
        "_ranks",
        "_times",
        "_values",
    )

    def __init__(self, engine: Engine = VLLM, layout: Layout | None = None) -> None:
        self._engine = engine
        self._layout = layout
        self._carry = b""
        self._forget()

    def _forget(self) -> None:
        self._dropped = 0
        self._values: dict[Quantity, float] = {}
        self._times: dict[Quantity, float] = {}
        self._ranks: dict[tuple[Quantity, bytes], float] = {}
        self._lora = self._cache = b""

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
        self._search(data, 0, end)

    def read(self, data: bytes | bytearray, begin: int, end: int) -> None:
        """Take a whole page, `data[begin:end]`; nothing of it is kept.

        Args:
            begin: 0, or what is before it ends with a newline.
        """
        if end > begin and data[end - 1] != _NEWLINE:
            self._carry = b"cut"
            return
        places = None if self._layout is None else self._layout.places(self._engine)
        if places is not None and self._search_places(data, begin, end, places):
            return
        self._forget()
        hits = self._search(data, begin, end)
        if self._layout is not None:
            self._layout.learn(self._engine, begin, hits)

    def finish(self) -> EngineMetrics:
        """The page is complete.

        Raises:
            BadPage: its last line has no end: cut short.
        """
        if self._carry:
            raise BadPage("the last line has no newline: the page was cut short")
        values, infos = self._values, self._infos()
        if Quantity.BLOCK_SIZE in values or Quantity.BLOCKS in values:
            infos = infos._replace(
                block_size=_whole_number(values.get(Quantity.BLOCK_SIZE)),
                blocks=_whole_number(values.get(Quantity.BLOCKS)),
            )
        waiting, running = values.get(Quantity.WAITING), values.get(Quantity.RUNNING)
        kv = values.get(Quantity.KV, values.get(Quantity.KV_OLD))
        return EngineMetrics(waiting, running, kv, self._dropped, *infos)

    def _infos(self) -> "_Infos":
        """What labels tell; they seldom change, so they are seldom read."""
        texts, layout = (self._lora, self._cache), self._layout
        if layout is not None and layout.texts == texts:
            return layout.infos
        lora, cache = labels_of(self._lora), labels_of(self._cache)
        size, blocks = self._engine.cache_labels
        infos = _Infos(
            _adapters(lora.get(b"running_lora_adapters")),
            _adapters(lora.get(b"waiting_lora_adapters")),
            _whole_number(lora.get(b"max_lora")),
            _whole_number(cache.get(size)),
            _whole_number(cache.get(blocks)),
        )
        if layout is not None and len(self._lora) + len(self._cache) <= _REMEMBERED_BYTES:
            layout.texts, layout.infos = texts, infos
        return infos

    def _search(self, data: bytes | bytearray, begin: int, end: int) -> dict[bytes, list[int]]:
        """Read all lines that matter; where they are, by needle."""
        size = end - begin
        return {
            needle: self._lines(needle, data, begin, end, size) for needle in self._engine.needles
        }

    def _search_places(
        self, data: bytes | bytearray, begin: int, end: int, places: dict[bytes, tuple[int, int]]
    ) -> bool:
        """Read the lines at the known places; whether there are as many as before."""
        for needle, (first, count) in places.items():
            start = begin + max(0, first - _GAP_BYTES)
            if len(self._lines(needle, data, start, end, 2 * _GAP_BYTES)) != count:
                return False
        return True

    def _lines(
        self, needle: bytes, data: bytes | bytearray, at: int, end: int, gap: int
    ) -> list[int]:
        """Read the lines from `at` in which a family's name has `needle`, none more than `gap`
        bytes after the one before; returns their places."""
        match, named = self._engine.pattern.match, self._engine.named
        hits: list[int] = []
        at = data.find(needle, at, min(end, at + gap))
        while at >= 0:
            hits.append(at)
            stop = data.find(b"\n", at, end)
            start = data.rfind(b"\n", 0, at) + 1
            if data[start] != _COMMENT:
                name = match(data, start, stop)
                if name is not None and at < name.end():  # not in a label's value
                    sample = bytes(data[name.end() : stop])
                    self._sample(named[name[1]], *split_sample(sample))
            at = data.find(needle, stop, min(end, stop + gap))
        return hits

    def _sample(self, families: tuple[Family, ...], labels: bytes, rest: bytes) -> None:
        family = families[0]
        known: dict[bytes, bytes] = {}
        if family.only is not None or family.replica is not None:
            known = labels_of(labels)
            matching = (f for f in families if f.only is None or known.get(f.only[0]) == f.only[1])
            if (found := next(matching, None)) is None:
                return
            family = found
        sample = value_of(rest)
        if sample is None or not 0.0 <= sample[0] <= (1.0 if family.share else _MOST):
            self._dropped += 1
        elif family.combine is Combine.NEWEST:
            self._newest(family.quantity, labels, *sample)
        else:
            self._add(family, known, sample[0])

    def _newest(self, quantity: Quantity, labels: bytes, value: float, time: int) -> None:
        """Of LoRA infos the value itself is the time."""
        when = value if quantity is Quantity.LORA else time
        if when <= self._times.get(quantity, -math.inf):
            return
        self._times[quantity] = when
        if quantity is Quantity.LORA:
            self._lora = labels
        elif quantity is Quantity.CACHE:
            self._cache = labels
        else:
            self._values[quantity] = value

    def _add(self, family: Family, labels: dict[bytes, bytes], value: float) -> None:
        values, quantity = self._values, family.quantity
        if family.combine is Combine.MAX:
            values[quantity] = max(values.get(quantity, value), value)
            return
        if family.replica is not None:
            rank = (quantity, labels.get(family.replica, b""))
            before = self._ranks.get(rank)
            if before is None and len(self._ranks) >= 2 * MAX_REPLICAS:
                self._dropped += 1
                return
            if before is not None and before >= value:
                return
            self._ranks[rank] = value
            value -= before or 0.0
        values[quantity] = values.get(quantity, 0.0) + value


def read_page(page: bytes, engine: Engine = VLLM) -> EngineMetrics:
    """A whole page at once; see `PageReader`.

    Raises:
        BadPage: cut short, or not lines of text.
    """
    reader = PageReader(engine)
    reader.read(page, 0, len(page))
    return reader.finish()


def _adapters(names: bytes | None) -> frozenset[str]:
    """Of a list with commas; an empty one has none."""
    if not names:
        return NO_ADAPTERS
    texts = names.decode("utf-8", "replace").split(",", MAX_ADAPTERS)[:MAX_ADAPTERS]
    found = (name.strip() for name in texts)
    return frozenset(name for name in found if name)


def _whole_number(value: bytes | float | None) -> int | None:
    """A number of things; None if it is none (vLLM says `None` before it has measured)."""
    if isinstance(value, bytes):
        return int(value) if value.isdigit() and len(value) <= 15 else None
    return None if value is None or value != int(value) else int(value)

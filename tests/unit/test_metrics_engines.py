"""Every engine's page: what is read of it, and that a full parser reads the same."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from epp_worker.datalayer.engines import ENGINES, engine_of
from epp_worker.datalayer.metrics_text import (
    FULL_EVERY,
    EngineMetrics,
    Layout,
    PageReader,
    read_page,
)
from tests.engine_pages import PAGES

NONE: frozenset[str] = frozenset()

EXPECTED = {
    "vllm": EngineMetrics(
        3, 5, 0.25, 0, frozenset({"sql", "chat"}), frozenset({"poet"}), 4, 16, 27_500
    ),
    "sglang": EngineMetrics(6, 7, 0.5, 0, block_size=64, blocks=9000),
    "trtllm-serve": EngineMetrics(7, 8, 0.75, 0, block_size=32, blocks=4096),
    "triton-tensorrt-llm": EngineMetrics(3, 7, 0.5, 0, block_size=64, blocks=512),
    "triton": EngineMetrics(9, 120, None, 0),
}


@pytest.mark.parametrize("size", [0, 49_000])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_of_each_engine(name: str, size: int) -> None:
    """Queue, running, cache, adapters and blocks, as the page's author says."""
    assert read_page(PAGES[name](size).encode(), engine_of(name)) == EXPECTED[name]


@pytest.mark.parametrize("name", ["", "vllm", "VLLM", "something-new"])
def test_who_is_unknown_is_read_as_vllm(name: str) -> None:
    """No label, or one that nobody knows."""
    assert engine_of(name).name == "vllm"


@pytest.mark.parametrize(
    ("engine", "page", "expected"),
    [
        ("vllm", 'vllm:num_requests_waiting{engine="0"} 2 9\nX{engine="1"} 3 5\n', 5),
        ("sglang", "sglang:num_queue_reqs 2\nX 5\n", 5),
        ("sglang", 'sglang:num_queue_reqs{dp_rank="0"} 2\nX{dp_rank="0"} 1\nX{dp_rank="1"} 4\n', 6),
        ("trtllm-serve", "trtllm_num_requests_waiting 2\nX 5\n", 2),
        ("trtllm-serve", "trtllm_num_requests_waiting 2 7\nX 5 8\nX 6 8\nX 9 1\nX 9\n", 5),
        ("triton", 'nv_inference_pending_request_count{model="a"} 2\nX{model="b"} 5\n', 7),
    ],
)
def test_several_series(engine: str, page: str, expected: float) -> None:
    """Engines and models behind one port add up, ranks of one replica do not; where series say the
    same thing twice the newest counts, of equals the first (inference-extension#1905)."""
    name = page.partition("{" if "{" in page.partition(" ")[0] else " ")[0]
    assert read_page(page.replace("X", name).encode(), engine_of(engine)).waiting == expected


@pytest.mark.parametrize(
    ("lines", "running", "waiting", "most"),
    [
        (
            ['running_lora_adapters="a, b,,",waiting_lora_adapters="c",max_lora="2"} 5'],
            "ab",
            "c",
            2,
        ),
        (['running_lora_adapters="",waiting_lora_adapters="",max_lora="0"} 5'], "", "", 0),
        (['running_lora_adapters="a"} 5', 'running_lora_adapters="b"} 6'], "b", "", None),
        (['running_lora_adapters="b"} 6', 'running_lora_adapters="a"} 5'], "b", "", None),
        (['running_lora_adapters="a"} 6', 'running_lora_adapters="b"} 6'], "a", "", None),
        (['running_lora_adapters="a"} 6', 'running_lora_adapters="b"} NaN'], "a", "", None),
        (['max_lora="many"} 6'], "", "", None),
        ([], "", "", None),
    ],
)
def test_the_newest_lora_info_counts(
    lines: list[str], running: str, waiting: str, most: int | None
) -> None:
    """By its value, which is the time it was written; engines never remove the old ones."""
    page = "".join(f"vllm:lora_requests_info{{{line}\n" for line in lines)
    metrics = read_page(page.encode())
    assert metrics.lora_running == set(running)
    assert metrics.lora_waiting == set(waiting)
    assert metrics.lora_max == most


def test_what_a_page_can_make_us_keep_is_bounded() -> None:
    """Adapters and replicas without end: the first thousand count, replicas of more are told of."""
    names = ",".join(str(number) for number in range(5000))
    page = f'vllm:lora_requests_info{{running_lora_adapters="{names}"}} 1\n'
    assert len(read_page(page.encode()).lora_running) == 1024
    page = "".join(f'sglang:num_queue_reqs{{dp_rank="{n}"}} 1\n' for n in range(3000))
    metrics = read_page(page.encode(), engine_of("sglang"))
    assert metrics.waiting is not None
    assert metrics.waiting + metrics.dropped == 3000
    assert metrics.dropped > 0


@pytest.mark.parametrize("blocks", ["None", "", "-1", "1e3", "12345678901234567"])
def test_blocks_that_are_no_number_are_unknown(blocks: str) -> None:
    """vLLM says `None` until it has measured its memory."""
    page = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}"}} 1\n'
    metrics = read_page(page.encode())
    assert (metrics.block_size, metrics.blocks) == (16, None)


@pytest.mark.parametrize("line", ["{a=", '{a="x} 5', '{a="x"', "{", "{}", '{a="x"}', "{} 5 x", " "])
def test_broken_lines_count_for_nothing(line: str) -> None:
    """Neither a value nor a fault; what follows them is read."""
    metrics = read_page(f"vllm:num_requests_waiting{line}\nvllm:num_requests_running 1\n".encode())
    assert (metrics.waiting, metrics.running, metrics.dropped) == (None, 1, 1)


# --- the oracle

Rule = Callable[[Sequence[Sample]], float | None]


def total(samples: Sequence[Sample]) -> float | None:
    return math.fsum(s.value for s in samples) if samples else None


def most(samples: Sequence[Sample]) -> float | None:
    return max((s.value for s in samples), default=None)


def newest(samples: Sequence[Sample]) -> float | None:
    found = max(samples, key=lambda s: s.timestamp or 0, default=None)  # the first of equals
    return None if found is None else found.value


def by_rank(samples: Sequence[Sample]) -> float | None:
    ranks: dict[str, float] = {}
    for s in samples:
        rank = s.labels.get("dp_rank", "")
        ranks[rank] = max(ranks.get(rank, 0.0), s.value)
    return sum(ranks.values()) if samples else None


class Reads(NamedTuple):
    """A family that an engine's page is read for, spelled out anew."""

    name: str
    rule: Rule
    label: tuple[str, str] | None = None


_REQUESTS, _BLOCKS = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
ORACLE: dict[str, tuple[Reads, Reads, Reads | None]] = {
    "vllm": (
        Reads("vllm:num_requests_waiting", total),
        Reads("vllm:num_requests_running", total),
        Reads("vllm:kv_cache_usage_perc", most),
    ),
    "sglang": (
        Reads("sglang:num_queue_reqs", by_rank),
        Reads("sglang:num_running_reqs", by_rank),
        Reads("sglang:token_usage", most),
    ),
    "trtllm-serve": (
        Reads("trtllm_num_requests_waiting", newest),
        Reads("trtllm_num_requests_running", newest),
        Reads("trtllm_kv_cache_utilization", newest),
    ),
    "triton-tensorrt-llm": (
        Reads(_REQUESTS, total, ("request_type", "waiting")),
        Reads(_REQUESTS, total, ("request_type", "scheduled")),
        Reads(_BLOCKS, most, ("kv_cache_block_type", "fraction")),
    ),
    "triton": (
        Reads("nv_inference_pending_request_count", total),
        Reads("nv_inference_exec_count", total),
        None,
    ),
}


def oracle(page: str, engine: str) -> list[float | None]:
    """Queue, running, cache by `prometheus_client`."""
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    found: list[float | None] = []
    for number, reads in enumerate(ORACLE[engine]):
        limit = 1.0 if number == 2 else 1e308
        matching = [
            s
            for s in samples
            if reads is not None
            and s.name == reads.name
            and (reads.label is None or s.labels.get(reads.label[0]) == reads.label[1])
            and 0 <= s.value <= limit
        ]
        found.append(None if reads is None else reads.rule(matching))
    return found


texts = st.text(max_size=6).filter(lambda t: not any(c in t for c in "\r\x0b\x0c\x1c\x1d\x1e\x85"))
labels = st.fixed_dictionaries(
    {},
    optional={
        "engine": st.sampled_from("01"),
        "dp_rank": st.sampled_from("012"),
        "request_type": st.sampled_from(["waiting", "scheduled", "context"]),
        "kv_cache_block_type": st.sampled_from(["fraction", "max", "used"]),
        "m": texts
        | st.sampled_from(['}"', "vllm:num_requests_waiting 9", "a\\", "\n", "{", "# x"]),
    },
)
values = st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.0, math.nan, math.inf, -1.0]) | st.floats(
    min_value=0, max_value=1e6
)
stamps = st.none() | st.integers(min_value=0, max_value=2000)


@st.composite
def pages(draw: st.DrawFn) -> tuple[str, str]:
    """An engine and a page of it, interleaved with families of others and names that go on."""
    engine = draw(st.sampled_from(sorted(ORACLE)))
    own = [reads.name for reads in ORACLE[engine] if reads is not None]
    names = st.sampled_from([*own, *own, own[0] + "_x", "x_" + own[1], "vllm:num_requests_waiting"])
    rows = st.lists(st.tuples(names, labels, values, stamps), max_size=10)
    lines = [f"# HELP {own[0]} {own[1]} 3\n# TYPE {own[0]} gauge\n"] if draw(st.booleans()) else []
    for name, pairs, value, stamp in draw(rows):
        inside = ",".join(
            '{}="{}"'.format(
                key, text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            )
            for key, text in pairs.items()
        )
        braces = f"{{{inside}}}" if inside or draw(st.booleans()) else ""
        when = "" if stamp is None else f" {stamp}"
        lines.append(f"{name}{braces} {value!r}{when}\n")
    return engine, "".join(lines)


@given(pages(), st.integers(min_value=1, max_value=60))
def test_agrees_with_prometheus_client(case: tuple[str, str], size: int) -> None:
    """The same figures as the full parser, whether the page comes whole, in pieces, or for the
    second time; interleaved families and all (client_python#282)."""
    name, text = case
    try:
        expected = oracle(text, name)
    except ValueError:  # the parser is at odds with some labels that the format allows
        return
    engine, page, layout = engine_of(name), text.encode(), Layout()
    pieces = PageReader(engine)
    for start in range(0, len(page), size):
        pieces.feed(page[start : start + size])
    found = [read_page(page, engine), pieces.finish()]
    for _ in range(3):
        reader = PageReader(engine, layout)
        reader.read(page, 0, len(page))
        found.append(reader.finish())
    for metrics in found:
        for figure, right in zip(metrics[:3], expected, strict=True):
            assert figure == (None if right is None else pytest.approx(right))
    assert len(set(found)) == 1


# --- the shape of the last page

FAR = "".join(f'x_bucket{{le="{n}"}} {n}\n' for n in range(500))


def read_with(layout: Layout, page: str) -> EngineMetrics:
    reader = PageReader(engine_of("vllm"), layout)
    reader.read(page.encode(), 0, len(page))
    return reader.finish()


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_a_known_shape_is_read_alike(name: str) -> None:
    """Page after page, while values grow longer and shorter and lines move with them."""
    layout, engine = Layout(), engine_of(name)
    for number in range(2 * FULL_EVERY):
        page = PAGES[name](20_000).replace(".0\n", f".0{'0' * (number % 5)}\n").encode()
        reader = PageReader(engine, layout)
        reader.read(page, 0, len(page))
        assert reader.finish() == EXPECTED[name]


@pytest.mark.parametrize(
    "changed",
    [
        'vllm:num_requests_waiting{engine="0"} 1\nvllm:num_requests_waiting{engine="1"} 4\n' + FAR,
        FAR + "vllm:num_requests_waiting 5\n",
        "vllm:num_requests_waiting 5\n",
    ],
)
def test_another_shape_is_seen_at_once(changed: str) -> None:
    """One series more at the known place, or nothing any more: the whole page is searched."""
    layout = Layout()
    assert read_with(layout, 'vllm:num_requests_waiting{engine="0"} 1\n' + FAR).waiting == 1
    assert read_with(layout, changed).waiting == 5


def test_a_series_far_from_its_own_is_seen_in_time() -> None:
    """What appears elsewhere, as no engine's library would write it, is found within 16 pages; a
    page that has always been so is never read in part (client_python#282)."""
    near, far = "vllm:num_requests_waiting 1\n", "vllm:num_requests_waiting 4\n"
    layout = Layout()
    found = [read_with(layout, near + FAR).waiting]
    found += [read_with(layout, near + FAR + far).waiting for _ in range(FULL_EVERY)]
    assert found[0] == 1
    assert found[-1] == 5
    assert [read_with(layout, near + FAR + far).waiting for _ in range(40)] == [5] * 40

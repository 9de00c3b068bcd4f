"""The page scan reads what prometheus_client reads, and refuses what cannot be trusted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from epp_worker.datalayer.metrics_text import MAX_LINE_BYTES, BadPage, PageReader, read_page

WAITING = "vllm:num_requests_waiting"
KV, KV_OLD = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"


def both(page: str) -> tuple[float | None, float | None]:
    metrics = read_page(page.encode())
    return metrics.waiting, metrics.kv


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (f"{WAITING} 3\n", (3, None)),
        (f"{KV} 0.5\n", (None, 0.5)),
        ("other 1\n", (None, None)),
        ("", (None, None)),
        (f"# HELP {WAITING} x\n# TYPE {WAITING} gauge\n", (None, None)),
        (f'{WAITING}{{engine="0"}} 1\n{WAITING}{{engine="1"}} 40\n', (41, None)),
        (f'{KV}{{engine="0"}} 0.1\n{KV}{{engine="1"}} 0.7\n', (None, 0.7)),
        (f"{KV_OLD} 0.4\n", (None, 0.4)),
        (f"{KV_OLD} 0.4\n{KV} 0.2\n", (None, 0.2)),
        (f'{WAITING}{{a="b"}}11\n', (11, None)),
        (f"{WAITING} 12\r\n{KV} 0.5\r\n", (12, 0.5)),
        (f"  {WAITING}\t7 1700000000000\n", (7, None)),
        (f'{WAITING}{{m="a}}\\" {KV} 1"}} 2\n', (2, None)),
        (f"{WAITING}_by_reason 9\n", (None, None)),
        (f'x{{y="{WAITING} 9"}} 1\n', (None, None)),
    ],
)
def test_page(page: str, expected: tuple[float | None, float | None]) -> None:
    """What is there is read; engines add up, the fullest cache counts, the new name wins
    (inference-extension#495, inference-extension#1905, vllm#18354, client_python#871)."""
    assert both(page) == expected


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "-Inf", "1e400", "1_0", "x", ""])
def test_impossible_queue(value: str) -> None:
    """Dropped and counted; the other values stay (erpc#696)."""
    metrics = read_page(f"{WAITING} {value}\n{KV} 0.5\n".encode())
    assert (metrics.waiting, metrics.kv, metrics.dropped) == (None, 0.5, 1)


@pytest.mark.parametrize("value", ["NaN", "-0.2", "37.5", "1.01", "+Inf"])
def test_impossible_cache_use(value: str) -> None:
    """A percentage or a negative share is no share of 0..1."""
    metrics = read_page(f"{WAITING} 1\n{KV} {value}\n".encode())
    assert (metrics.waiting, metrics.kv, metrics.dropped) == (1, None, 1)


def test_cut_page_is_no_page() -> None:
    """`12` may have been `123` (client_python#282)."""
    with pytest.raises(BadPage):
        read_page(f"{WAITING} 12".encode())


def test_endless_line() -> None:
    """A line without an end is refused before it fills the memory."""
    reader = PageReader()
    with pytest.raises(BadPage):
        for _ in range(MAX_LINE_BYTES // 1000 + 2):
            reader.feed(b"x" * 1000)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([WAITING, "vllm:num_requests_running", WAITING + "_x", "other"]),
            st.text(max_size=8).filter(lambda t: not any(c in t for c in "\r\x0b\x0c\x1c\x85")),
            st.floats(min_value=0, max_value=1e6, allow_nan=False),
        ),
        max_size=8,
    ),
    st.integers(min_value=1, max_value=50),
)
def test_agrees_with_prometheus_client(series: list[tuple[str, str, float]], size: int) -> None:
    """The same sums as the real parser, however the page is cut into pieces."""
    lines = []
    for name, label, value in series:
        escaped = label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'{name}{{m="{escaped}"}} {value!r}\n')
    text = "".join(lines)
    try:
        families = list(text_string_to_metric_families(text))
    except ValueError:
        return
    samples = [s for family in families for s in family.samples if s.name == WAITING]
    expected = math.fsum(s.value for s in samples) if samples else None
    reader = PageReader()
    page = text.encode()
    for start in range(0, len(page), size):
        reader.feed(page[start : start + size])
    waiting = reader.finish().waiting
    assert waiting == (None if expected is None else pytest.approx(expected))

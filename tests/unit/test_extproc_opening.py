"""The beginning of a long prompt: the same bytes as of all of it, for less work."""

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epp_worker.extproc.hints import BodyHints
from epp_worker.extproc.opening import opening
from epp_worker.extproc.paths import Shape
from epp_worker.extproc.said import read

MIB = 1024 * 1024

texts = st.text(max_size=12) | st.sampled_from(
    ["\\", '"', '\\"', "\\\\", "\n\n", "🙂", "你好", "{[", "]}", '":{"'] * 3
)
"""With all that a cut could fall into: escapes, surrogate pairs, characters of many bytes."""

parts = texts.map(lambda text: {"type": "text", "text": text}) | texts.map(
    lambda url: {"type": "image_url", "image_url": {"url": url, "detail": "low"}}
)
contents = texts | st.lists(parts, max_size=3)
turns = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": contents})
conversations = st.lists(turns, min_size=1, max_size=8)


def of(shape: Shape, body: Any, *, ascii_only: bool = True) -> BodyHints:
    return BodyHints(shape, read(json.dumps(body, ensure_ascii=ascii_only).encode()))


@settings(max_examples=300, deadline=None)
@given(conversations, st.integers(1, 60), st.booleans())
def test_the_beginning_is_that_of_the_whole(
    messages: list[dict[str, Any]], size: int, ascii_only: bool
) -> None:
    """For any conversation and wherever the cut falls: so two prompts that begin alike do so
    however long they are."""
    body = {"model": "m", "messages": messages}
    whole = of(Shape.CHAT, body, ascii_only=ascii_only).prompt
    found = of(Shape.CHAT, body, ascii_only=ascii_only).beginning(size)
    assert found[:size] == whole[:size]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=80), st.integers(1, 40), st.booleans())
def test_the_beginning_of_a_text(prompt: str, size: int, ascii_only: bool) -> None:
    body = {"prompt": prompt}
    whole = of(Shape.COMPLETION, body, ascii_only=ascii_only).prompt
    assert of(Shape.COMPLETION, body, ascii_only=ascii_only).beginning(size)[:size] == whole[:size]


def test_more_may_be_asked_for_afterwards() -> None:
    """Another plugin wants more of it, or all; and what was let go stays so."""
    made = of(Shape.COMPLETION, {"prompt": "ab" * 1000})
    assert made.beginning(10)[:10] == b"ababababab"
    assert made.beginning(100)[:100] == b"ab" * 50
    assert made.prompt == b"ab" * 1000
    assert made.beginning(5)[:5] == b"ababa"
    made.forget()
    assert made.beginning(5) == made.prompt == b""


def test_a_role_that_comes_late_is_waited_for() -> None:
    """It is read before the content, wherever it stands."""
    made = of(Shape.CHAT, {"messages": [{"content": "x" * 5000, "role": "user"}]})
    assert made.beginning(8)[:8] == b"userxxxx"


@pytest.mark.parametrize(
    ("value", "size", "found"),
    [
        (b'["abc","def"]', 4, ["ab"]),
        (b'[{"role":"u","content":"abc"}]', 26, [{"role": "u", "content": "ab"}]),
        (b'[{"role":"u","content":"abc"}]', 16, None),
        (b'[{"role":"u","n":12345}]', 19, None),
        (b'["a\\n\\u00e9bc"]', 8, ["a\n"]),
        ('["aéb"]'.encode(), 4, ["a"]),
        (b"[1,2,3,4]", 4, None),
        (b"[" * 100 + b'"a"' + b"]" * 100, 102, None),
    ],
)
def test_what_is_open_at_the_cut_is_closed(value: bytes, size: int, found: Any) -> None:
    """What cannot be closed is not guessed."""
    assert opening(memoryview(value), size) == found


def test_a_very_long_prompt_costs_what_is_asked_of_it() -> None:
    """Half a MiB of 10 takes a part of what all of it takes."""
    body = json.dumps({"messages": [{"role": "user", "content": 'A "word"\n' * MIB}]}).encode()
    said = read(body)

    def took(size: int) -> float:
        times = []
        for _ in range(3):
            began = time.thread_time()
            assert len(BodyHints(Shape.CHAT, said).beginning(size)) >= min(size, 9 * MIB)
            times.append(time.thread_time() - began)
        return min(times)

    assert took(MIB // 2) < took(1 << 62) / 2

"""A body whose messages are decoded at once says what it says when they are looked at later."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epp_worker.extproc.hints import BodyHints
from epp_worker.extproc.paths import Shape
from epp_worker.extproc.said import TURNS_BYTES, SaidInTurns, SaidRaw, read, read_at_once

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("text", "type", "x")), inner, max_size=3)
    ),
    max_leaves=6,
)
TURNS = st.dictionaries(
    st.sampled_from(("role", "content", "tool_calls", "reasoning_content", "output", "name")),
    VALUES,
    max_size=4,
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(max_size=5),
        "messages": st.lists(TURNS, max_size=4) | VALUES,
        "prompt": VALUES,
        "system": VALUES,
        "tools": VALUES,
        "input": VALUES,
    },
)
SHAPES = (Shape.CHAT, Shape.MESSAGES, Shape.COMPLETION, Shape.RESPONSE)


@given(BODIES, st.sampled_from(SHAPES), st.booleans())
def test_the_prompt_is_the_same(body: dict[str, Any], shape: Shape, ascii_only: bool) -> None:
    raw = json.dumps(body, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    try:
        later = read(raw)
    except (msgspec.MsgspecError, ValueError) as error:
        with pytest.raises(type(error)):
            read_at_once(raw)
        return
    at_once = read_at_once(raw)
    assert BodyHints(shape, at_once).prompt == BodyHints(shape, later).prompt
    assert at_once.model == later.model
    assert bytes(at_once.prompt) == bytes(later.prompt)


def test_turns_are_read_at_once_and_what_is_none_later() -> None:
    chat = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'
    assert isinstance(read_at_once(chat), SaidInTurns)
    assert BodyHints(Shape.CHAT, read_at_once(chat)).prompt == b"userHello"
    odd = b'{"model": "m", "messages": ["Hello"]}'
    assert isinstance(read_at_once(odd), SaidRaw)
    assert BodyHints(Shape.CHAT, read_at_once(odd)).prompt == b"Hello"


def test_of_a_long_body_no_more_is_decoded_than_is_asked_for() -> None:
    text = "x" * TURNS_BYTES
    long = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    assert isinstance(read_at_once(long), SaidRaw)


def test_no_messages_are_not_empty_ones() -> None:
    for body, prompt in (
        (b'{"messages": null, "prompt": "p"}', b"p"),
        (b'{"prompt": "p"}', b"p"),
        (b'{"messages": [], "prompt": "p"}', b""),
    ):
        assert BodyHints(Shape.CHAT, read_at_once(body)).prompt == prompt

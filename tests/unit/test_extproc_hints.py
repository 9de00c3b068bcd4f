"""What a body says beside its model, for plugins that ask."""

import json
import time
from typing import Any

import pytest

from epp_worker.extproc.hints import MAX_COMMAS, MAX_OPENINGS, BodyHints
from epp_worker.extproc.model import Body, body_of
from epp_worker.extproc.paths import Shape, names_model, path_of, shape_of
from epp_worker.extproc.said import NOTHING_SAID


def of_body(shape: Shape, body: bytes) -> BodyHints:
    read = body_of(body, dict[str, str]().get, Shape.OTHER, largest=0)
    return BodyHints(shape, read.said if isinstance(read, Body) else NOTHING_SAID)


def hints(shape: Shape, **body: Any) -> BodyHints:
    return of_body(shape, json.dumps(body, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/v1/chat/completions", Shape.CHAT),
        ("/v1/completions", Shape.COMPLETION),
        ("/openai/deployments/x/chat/completions", Shape.CHAT),
        ("/v1/chat/completions/", Shape.CHAT),
        ("/v1/chat/completions/render", Shape.CHAT),
        ("/v1/completions/render", Shape.COMPLETION),
        ("/v1/embeddings", Shape.EMBEDDING),
        ("/v1/responses", Shape.RESPONSE),
        ("/v1/conversations", Shape.CONVERSATION),
        ("/v1/images/generations", Shape.IMAGE),
        ("/v1/messages", Shape.MESSAGES),
        ("/v1/messages/count_tokens", Shape.MESSAGES),
        ("/inference/v1/generate", Shape.GENERATE),
        ("/v1/models", Shape.OTHER),
        ("/vllm.grpc.engine.VllmEngine/Generate", Shape.OTHER),
        ("", Shape.OTHER),
    ],
)
def test_the_longest_ending_decides(path: str, shape: Shape) -> None:
    """As the reference endpoint picker's parsers do."""
    assert shape_of(path) is shape


def test_whose_model_is_optional() -> None:
    """Image, conversation and token requests may do without, and so may what is not known."""
    free = {Shape.CONVERSATION, Shape.IMAGE, Shape.GENERATE, Shape.OTHER}
    assert {shape for shape in Shape if not names_model(shape)} == free


def test_where_the_path_stands() -> None:
    """The first header that there is, without its query."""
    given = {":path": "/v1/x?a=/b", "x-original-path": "/y"}
    assert path_of(given.get) == "/v1/x"
    assert path_of({"x-original-path": "/y", "x-forwarded-path": "/z"}.get) == "/y"
    assert path_of({"x-forwarded-path": "/z"}.get) == "/z"
    assert path_of(dict[str, str]().get) == ""


@pytest.mark.parametrize(
    ("made", "prompt"),
    [
        (hints(Shape.COMPLETION, prompt="hello"), b"hello"),
        (hints(Shape.COMPLETION, prompt=["one", "two"]), b"onetwo"),
        (
            hints(
                Shape.CHAT,
                messages=[
                    {"role": "system", "content": "be kind"},
                    {"role": "user", "content": [{"type": "text", "text": "hi"}]},
                ],
                tools=[{"name": "t"}],
            ),
            b'[{"name":"t"}]systembe kinduserhi',
        ),
        (
            hints(Shape.MESSAGES, system="sys", messages=[{"role": "user", "content": "hi"}]),
            b"sysuserhi",
        ),
        (hints(Shape.RESPONSE, instructions="do", input="this"), b"dothis"),
        (
            hints(Shape.RESPONSE, input=[{"role": "user", "content": [{"text": "a"}]}]),
            b"usera",
        ),
        (hints(Shape.EMBEDDING, input=["a", "b"]), b"ab"),
        (hints(Shape.IMAGE, prompt="a cat"), b"a cat"),
        (hints(Shape.COMPLETION, prompt="你好🙂"), "你好🙂".encode()),
    ],
)
def test_the_prompt(made: BodyHints, prompt: bytes) -> None:
    """Tools, roles, contents, in the order in which the model reads them."""
    assert made.prompt == prompt


def test_images_are_part_of_the_prompt() -> None:
    """Two requests that differ in an image alone differ."""

    def asked(url: str) -> bytes:
        part = {"type": "image_url", "image_url": {"url": url}}
        return hints(Shape.CHAT, messages=[{"role": "user", "content": [part]}]).prompt

    assert asked("data:a") != asked("data:b")
    assert asked("data:a").startswith(b"user")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": None},
        {"messages": []},
        {"messages": "x"},
        {"messages": [None, 1, [], {"content": None, "tool_calls": []}]},
        {"messages": [{"role": 1, "content": 2}]},
        {"tools": None, "messages": 7},
        {"prompt": {"a": [1]}},
        {"max_tokens": "many", "stream": "true"},
        {"max_tokens": True},
        {"max_tokens": 10**30},
        {"max_tokens": -1},
    ],
)
def test_odd_shapes_lose_hints_and_nothing_else(body: dict[str, Any]) -> None:
    """No shape raises (kubernetes-sigs/gateway-api-inference-extension#790)."""
    for shape in Shape:
        made = hints(shape, **body)
        assert isinstance(made.prompt, bytes)
        assert made.token_ids is None
        assert made.stream is False
        assert made.max_tokens is None


def test_token_ids() -> None:
    """From a prompt of tokens, or vLLM's own field; a mixed list is none."""
    assert hints(Shape.COMPLETION, prompt=[1, 2, 3]).token_ids == [1, 2, 3]
    assert hints(Shape.GENERATE, token_ids=[4, 5]).token_ids == [4, 5]
    assert hints(Shape.EMBEDDING, input=[6]).token_ids == [6]
    assert hints(Shape.COMPLETION, prompt=[1, "a"]).token_ids is None
    assert hints(Shape.COMPLETION, prompt=[True]).token_ids is None


def test_stream_and_the_longest_answer() -> None:
    """`max_completion_tokens` goes before `max_tokens`; vLLM has it in the sampling parameters."""
    made = hints(Shape.CHAT, stream=True, max_tokens=5, max_completion_tokens=7)
    assert made.stream
    assert made.max_tokens == 7
    assert hints(Shape.RESPONSE, max_output_tokens=9).max_tokens == 9
    assert hints(Shape.GENERATE, sampling_params={"max_tokens": 3}).max_tokens == 3


def test_the_body_is_let_go() -> None:
    """A plugin that keeps the request does not keep the prompt."""
    made = hints(Shape.CHAT, messages=[{"role": "user", "content": "x"}], stream=True)
    assert made.prompt
    made.forget()
    assert (made.prompt, made.token_ids, made.stream, made.max_tokens) == (b"", None, False, None)


@pytest.mark.parametrize("body", [b"", b"{", b"[" * 200_000, b'{"messages":[NaN]}', b"\xff"])
def test_what_is_no_json_says_nothing(body: bytes) -> None:
    """Whatever it is."""
    made = of_body(Shape.CHAT, body)
    assert (made.prompt, made.token_ids, made.stream, made.max_tokens) == (b"", None, False, None)


@pytest.mark.parametrize("part", [b"{}", b"[]", b'""', b"1", b'{"content":[{}]}'])
def test_a_body_of_very_many_parts_is_not_taken_apart(part: bytes) -> None:
    """1 MiB of empty turns once took 0.4 s, 10 MiB 3.8 s; a third of the one is plenty here."""
    messages = b"[" + b",".join([part] * (1024 * 1024 // (len(part) + 1))) + b"]"
    begun = time.process_time()
    found = of_body(Shape.CHAT, b'{"model":"m","messages":' + messages + b"}")
    assert found.prompt == messages
    assert found.token_ids is None
    assert time.process_time() - begun < 0.13


def test_a_long_conversation_begins_with_what_it_was_before() -> None:
    """So that its prefix is found, however many parts it has; the small fields are read as ever."""
    turns = [{"role": "user", "content": f"question {number}"} for number in range(MAX_OPENINGS)]
    said: dict[str, Any] = {"max_tokens": 7, "stream": True, "cache_salt": "s" * 100}
    before = hints(Shape.CHAT, messages=turns, tools=[{"type": "f"}], **said)
    after = hints(Shape.CHAT, messages=[*turns, *turns[:9]], tools=[{"type": "f"}], **said)
    assert before.prompt.startswith(b'[{"type":"f"}][{"role":"user","content":"question 0"},')
    assert after.prompt.startswith(before.prompt[:-1])
    assert (after.max_tokens, after.stream, after.cache_salt) == (7, True, "s" * 100)


def test_the_prompt_of_very_many_tokens() -> None:
    """It is compared by its spelling; a limit is found where vLLM's own endpoint has it, null is
    no text, and what is no number there is no limit."""
    tokens = list(range(MAX_COMMAS + 2))
    found = hints(
        Shape.GENERATE,
        token_ids=tokens,
        prompt=tokens,
        messages=None,
        sampling_params={"max_tokens": 5},
    )
    assert found.prompt.startswith(b"[0,1,2,3,")
    assert found.token_ids is None
    assert found.max_tokens == 5
    odd = hints(Shape.GENERATE, prompt=tokens, sampling_params=[1], stream={"a": [1] * 40})
    assert (odd.max_tokens, odd.stream, odd.prompt[:5]) == (None, False, b"[0,1,")

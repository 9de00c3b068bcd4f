"""Token usage is found wherever the response is cut, and never costs more than a count."""

import json

import pytest

from epp_worker.extproc.usage import MAX_DOCUMENT_BYTES, MAX_EVENT_BYTES, UsageReader

SSE = "text/event-stream; charset=utf-8"
STREAM = (
    'data: {"choices":[{"delta":{"content":"你好🙂"}}],"usage":null}\n\n'
    ': comment\n\n'
    'data: {"choices":[],"usage":{"prompt_tokens":7,"total_tokens":17,"completion_tokens":10}}\n\n'
    "data: [DONE]\n\n"
)  # fmt: skip


def read(content_type: str | None, *chunks: bytes) -> UsageReader:
    reader = UsageReader(content_type)
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_events_cut_at_every_byte(ending: str) -> None:
    """Usage is found however the events fall into chunks (vllm-project/aibrix#2638,
    openai/openai-agents-python#4707, kubernetes-sigs/gateway-api-inference-extension#2026)."""
    body = STREAM.replace("\n", ending).encode()
    for cut in range(len(body) + 1):
        reader = read(SSE, body[:cut], body[cut:])
        assert (reader.prompt, reader.completion, reader.faults) == (7, 10, 0), cut
    reader = read(SSE, *(body[i : i + 1] for i in range(len(body))))
    assert (reader.prompt, reader.completion) == (7, 10)


@pytest.mark.parametrize(
    "event",
    [
        'data:{"usage":{"prompt_tokens":7,"completion_tokens":10}}',
        'event: x\nid: 1\ndata: {"usage":\ndata: {"prompt_tokens":7,"completion_tokens":10}}',
        'data: {"usage":{"prompt_tokens":7,"completion_tokens":10}}\n',
    ],
)
def test_forms_of_an_event(event: str) -> None:
    """No blank after the colon, data over several lines, no blank line at the very end."""
    reader = read(SSE, b"data: {}\n\n", event.encode())
    assert (reader.prompt, reader.completion) == (7, 10)


def test_anthropic_and_responses_events() -> None:
    """Input tokens at the start, output tokens at the end; or both in `response`."""
    reader = read(
        SSE,
        b'data: {"type":"message_start","message":'
        b'{"usage":{"input_tokens":7,"output_tokens":1}}}\n\n',
        b'data: {"type":"message_delta","usage":{"output_tokens":10}}\n\n',
    )
    assert (reader.prompt, reader.completion, reader.faults) == (7, 10, 0)
    reader = read(
        SSE,
        b'data: {"type":"response.completed","response":'
        b'{"usage":{"input_tokens":7,"output_tokens":10}}}\n\n',
    )
    assert (reader.prompt, reader.completion, reader.faults) == (7, 10, 0)


def test_long_event_is_skipped() -> None:
    """An event over the bound is lost, the next one is read."""
    long = b'data: {"x":"' + b"y" * (MAX_EVENT_BYTES + 10) + b'","usage":{"prompt_tokens":1}}\n\n'
    good = b'data: {"usage":{"prompt_tokens":7}}\n\n'
    reader = UsageReader(SSE)
    for start in range(0, len(long), 1000):
        reader.feed(long[start : start + 1000])
        assert reader.held <= MAX_EVENT_BYTES + 1000
    reader.feed(good)
    reader.finish()
    assert (reader.prompt, reader.faults) == (7, 0)


@pytest.mark.parametrize(
    ("usage", "prompt", "faults"),
    [
        ('"oops"', None, 1),
        ('{"prompt_tokens":"1024"}', None, 1),
        ('{"prompt_tokens":3,"prompt_token_details":0}', 3, 0),
        ("null", None, 0),
        ("[]", None, 1),
        ('{"prompt_tokens":-5}', None, 1),
        ('{"prompt_tokens":1e308}', None, 1),
        ('{"prompt_tokens":true}', None, 1),
        ('{"prompt_tokens":null}', None, 0),
        ('{"prompt_tokens":99999999999999999999999}', None, 1),
        ('{"prompt_tokens":NaN}', None, 1),
        ("{}", None, 0),
    ],
)
@pytest.mark.parametrize("form", ["application/json", SSE])
def test_odd_usage(usage: str, prompt: int | None, faults: int, form: str) -> None:
    """A bad field is ignored and counted, and nothing else (llm-d#1363)."""
    document = f'{{"id":"x","usage":{usage}}}'
    body = f"data: {document}\n\n" if form == SSE else document
    reader = read(form, body.encode())
    assert (reader.prompt, reader.completion, reader.faults) == (prompt, None, faults)


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-8", None, "text/plain"])
def test_document(content_type: str | None) -> None:
    """Anything that is no event stream is one JSON document, in any number of chunks."""
    body = json.dumps({"usage": {"prompt_tokens": 7, "completion_tokens": 10}}).encode()
    reader = read(content_type, *(body[i : i + 5] for i in range(0, len(body), 5)))
    assert (reader.prompt, reader.completion) == (7, 10)


def test_content_type_decides() -> None:
    """Events under a JSON content type, or JSON under the other, are not guessed at
    (aibrix#1816)."""
    assert read(SSE, b'{"usage":{"prompt_tokens":7}}').prompt is None
    assert read("application/json", STREAM.encode()).prompt is None


def test_large_document_is_not_kept() -> None:
    """Over the bound the copy is dropped at once."""
    reader = UsageReader("application/json")
    for _ in range(40):
        reader.feed(b"x" * 65_536)
        assert reader.held <= MAX_DOCUMENT_BYTES
    reader.finish()
    assert (reader.prompt, reader.faults, reader.held) == (None, 0, 0)


@pytest.mark.parametrize(
    ("usage", "cached", "faults"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}, 4, 0),
        ({"input_tokens": 9, "input_tokens_details": {"cached_tokens": 0}}, 0, 0),
        ({"input_tokens": 9, "cache_read_input_tokens": 5}, 5, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": None}, None, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"audio_tokens": 0}}, None, 0),
        ({"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": -1}}, None, 1),
    ],
)
def test_cached_tokens(usage: dict[str, object], cached: int | None, faults: int) -> None:
    """OpenAI's completions and responses, and Anthropic's; many servers send null details."""
    reader = UsageReader("application/json")
    reader.feed(json.dumps({"usage": usage}).encode())
    reader.finish()
    assert (reader.cached, reader.faults) == (cached, faults)

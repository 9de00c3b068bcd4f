"""What a body says beside its model, read when a scheduling plugin asks for it.

Every shape that is not understood means one hint less and nothing else: the model server is the
judge of requests. The body is read once, at the first question. One of very many parts is not
taken apart, since 16 MiB of `{},` would keep the loop for seconds: its prompt is the JSON as it
came, which has a beginning in common with another prompt just as its texts have.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from epp_worker.extproc.paths import Shape

MAX_TOKENS = 2**31 - 1
"""A longer answer is not believed."""

MAX_OPENINGS = 65_536
MAX_COMMAS = 262_144
"""Of a body that is taken apart, those within its texts included: 40 to 80 ms at worst."""

_NOT_SAID = msgspec.Raw(b"")


class _Said(msgspec.Struct):
    """Everything that any shape says of itself."""

    prompt: Any = None
    messages: Any = None
    tools: msgspec.Raw = msgspec.Raw(b"")
    instructions: Any = None
    system: Any = None
    input: Any = None
    items: Any = None
    token_ids: Any = None
    cache_salt: Any = None
    stream: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    max_output_tokens: Any = None
    sampling_params: Any = None


class _Sampling(msgspec.Struct):
    """Of a body that is not taken apart, its `sampling_params`."""

    max_tokens: msgspec.Raw = _NOT_SAID


class _Whole(msgspec.Struct):
    """The same as `_Said`, nothing of it taken apart."""

    prompt: msgspec.Raw = _NOT_SAID
    messages: msgspec.Raw = _NOT_SAID
    tools: msgspec.Raw = _NOT_SAID
    instructions: msgspec.Raw = _NOT_SAID
    system: msgspec.Raw = _NOT_SAID
    input: msgspec.Raw = _NOT_SAID
    items: msgspec.Raw = _NOT_SAID
    cache_salt: msgspec.Raw = _NOT_SAID
    stream: msgspec.Raw = _NOT_SAID
    max_tokens: msgspec.Raw = _NOT_SAID
    max_completion_tokens: msgspec.Raw = _NOT_SAID
    max_output_tokens: msgspec.Raw = _NOT_SAID
    sampling_params: msgspec.Raw = _NOT_SAID


_decode = msgspec.json.Decoder(_Said).decode
_decode_whole = msgspec.json.Decoder(_Whole).decode
_decode_sampling = msgspec.json.Decoder(_Sampling).decode
_encode = msgspec.json.encode
_NOTHING = _Said()
_SCALAR_BYTES = 32
_TURN = ("reasoning_content", "content", "tool_calls", "arguments", "output")


class BodyHints:
    """See `epp_worker.scheduling.contract.Hints`."""

    __slots__ = ("_body", "_prompt", "_said", "_shape", "_tokens")

    def __init__(self, shape: Shape, body: bytes) -> None:
        """Args:
        body: JSON, without a content coding; b"" if it is anything else.
        """
        self._shape = shape
        self._body = body
        self._said: _Said | None = None
        self._prompt: bytes | None = None
        self._tokens: Sequence[int] | None = None

    def forget(self) -> None:
        """Let the body go, and all that was read of it: the request has been picked for."""
        self._body = self._prompt = b""
        self._tokens = None
        self._said = _NOTHING

    @property
    def prompt(self) -> bytes:
        """See `Hints.prompt`."""
        if self._prompt is None:
            self._prompt = b"".join(_prompt(self._shape, self._read()))
        return self._prompt

    @property
    def token_ids(self) -> Sequence[int] | None:
        """See `Hints.token_ids`."""
        if self._tokens is None and self._body:
            said = self._read()
            self._tokens = _tokens(said.token_ids) or _tokens(said.prompt)
            if self._tokens is None and self._shape is Shape.EMBEDDING:
                self._tokens = _tokens(said.input)
        return self._tokens

    @property
    def cache_salt(self) -> str:
        """See `Hints.cache_salt`."""
        salt = self._read().cache_salt
        return salt if isinstance(salt, str) else ""

    @property
    def stream(self) -> bool:
        """See `Hints.stream`."""
        return self._read().stream is True

    @property
    def max_tokens(self) -> int | None:
        """See `Hints.max_tokens`."""
        said = self._read()
        limits = [said.max_completion_tokens, said.max_tokens, said.max_output_tokens]
        if isinstance(said.sampling_params, dict):
            limits.append(said.sampling_params.get("max_tokens"))
        return next((each for each in limits if type(each) is int and 0 < each <= MAX_TOKENS), None)

    def _read(self) -> _Said:
        if self._said is None:
            self._said = _NOTHING
            if self._body:
                try:
                    self._said = _whole(self._body) if _many(self._body) else _decode(self._body)
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    self._said = _NOTHING
        return self._said


def _many(body: bytes) -> bool:
    """Whether taking it apart would take too long."""
    if len(body) <= MAX_OPENINGS:
        return False
    commas = body.count(b",")
    return commas > MAX_COMMAS or body.count(b"{") + body.count(b"[") > MAX_OPENINGS


def _whole(body: bytes) -> _Said:
    """What a body says that is not taken apart: its texts are JSON."""
    came = _decode_whole(body)
    sampling = came.sampling_params
    inner = _decode_sampling(sampling) if bytes(sampling).startswith(b"{") else _Sampling()
    return _Said(
        prompt=_said(came.prompt),
        messages=_said(came.messages),
        tools=came.tools,
        instructions=_said(came.instructions),
        system=_said(came.system),
        input=_said(came.input),
        items=_said(came.items),
        cache_salt=_scalar(came.cache_salt),
        stream=_scalar(came.stream),
        max_tokens=_scalar(came.max_tokens),
        max_completion_tokens=_scalar(came.max_completion_tokens),
        max_output_tokens=_scalar(came.max_output_tokens),
        sampling_params={"max_tokens": _scalar(inner.max_tokens)},
    )


def _said(value: msgspec.Raw) -> msgspec.Raw | None:
    return None if bytes(value) in (b"", b"null") else value


def _scalar(value: msgspec.Raw) -> Any:
    data = bytes(value)
    if data.startswith(b'"') or 0 < len(data) <= _SCALAR_BYTES:
        return msgspec.json.decode(data)
    return None


def _tokens(value: Any) -> Sequence[int] | None:
    if isinstance(value, list) and value and all(type(each) is int for each in value):
        return value
    return None


def _prompt(shape: Shape, said: _Said) -> Iterator[bytes]:
    """Tools, then what the model is told, then what it is asked; see `Hints.prompt`."""
    tools = bytes(said.tools)
    if tools and tools != b"null":
        yield tools
    if shape is Shape.RESPONSE:
        yield from _text(said.instructions)
        yield from _turns(said.input)
    elif shape is Shape.MESSAGES:
        yield from _text(said.system)
        yield from _turns(said.messages)
    elif shape is Shape.EMBEDDING:
        yield from _text(said.input)
    elif shape is Shape.CONVERSATION:
        yield from _turns(said.items)
    elif said.messages is not None:
        yield from _turns(said.messages)
    else:
        yield from _text(said.prompt)


def _turns(value: Any) -> Iterator[bytes]:
    if not isinstance(value, list):
        yield from _text(value)
        return
    for turn in value:
        if isinstance(turn, dict):
            role = turn.get("role")
            if isinstance(role, str):
                yield _utf8(role)
            for name in _TURN:
                part = turn.get(name)
                if part is not None:
                    yield from _text(part)
        else:
            yield from _text(turn)


def _text(value: Any) -> Iterator[bytes]:
    """Texts as they are, parts that are no text (images, tool calls) as JSON."""
    if isinstance(value, str):
        yield _utf8(value)
    elif isinstance(value, dict):
        text = value.get("text")
        yield _utf8(text) if isinstance(text, str) else _encode(value)
    elif isinstance(value, msgspec.Raw):
        yield bytes(value)
    elif isinstance(value, list) and _tokens(value) is None:
        yield from _each(value)


def _each(values: Iterable[Any]) -> Iterator[bytes]:
    for value in values:
        if isinstance(value, str):
            yield _utf8(value)
        elif isinstance(value, dict):
            yield from _text(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

"""What a body says beside its model, read when a scheduling plugin asks for it.

Every shape that is not understood means one hint less and nothing else: the model server is the
judge of requests. A field is read when somebody asks, of a long prompt no more than is asked for.
One of very many parts is not taken apart, since 16 MiB of `{},` would keep the loop for seconds:
its text is the JSON as it came, which has a beginning in common with another one as texts have.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from epp_worker.extproc.opening import opening
from epp_worker.extproc.paths import Shape
from epp_worker.extproc.said import NOTHING_SAID, Said, SaidInTurns, SaidRaw, Turn

MAX_TOKENS: Final = 2**31 - 1
"""A longer answer is not believed."""

_Texts: TypeAlias = Callable[[Any], Iterator[bytes]]
_Field: TypeAlias = "msgspec.Raw | list[Turn] | None"

MAX_OPENINGS: Final = 65_536
MAX_COMMAS: Final = 262_144
"""Of a value that is taken apart, those within its texts included: 40 to 80 ms at worst."""

_SCALAR_BYTES: Final = 32
_LIST, _QUOTE, _NULL = b'["n'
_NO_MARKS: Final = bytes(set(range(256)) - set(b",[{"))
_CUTS = (0, 61, 127)
"""A cut may fall where it says nothing, as in a key: a little before it does not."""
_TURN: Final = ("reasoning_content", "content", "tool_calls", "arguments", "output")

_ids: Final = msgspec.json.Decoder(list[int]).decode
_encode: Final = msgspec.json.encode
_EVERYTHING: Final = 1 << 62
_EMBEDDING: Final = Shape.EMBEDDING


class BodyHints:
    """See `epp_worker.scheduling.contract.Hints`."""

    __slots__ = ("_prompt", "_said", "_shape", "_till", "_tokens")

    def __init__(self, shape: Shape, said: Said) -> None:
        """Args:
        said: by the body.
        """
        self._shape = shape
        self._said = said
        self._prompt = b""
        self._till = 0
        self._tokens: Sequence[int] | None = None

    def forget(self) -> None:
        """Let the body go, and all that was read of it: the request has been picked for."""
        self._said = NOTHING_SAID
        self._prompt = b""
        self._till = _EVERYTHING
        self._tokens = None

    @property
    def prompt(self) -> bytes:
        """See `Hints.prompt`."""
        return self.beginning(_EVERYTHING)

    def beginning(self, size: int) -> bytes:
        """See `Hints.beginning`."""
        if size > self._till:
            self._prompt = _prompt(self._shape, self._said, size)
            self._till = size if len(self._prompt) >= size else _EVERYTHING
        return self._prompt

    @property
    def token_ids(self) -> Sequence[int] | None:
        """See `Hints.token_ids`."""
        if self._tokens is None:
            said = self._said
            if said.token_ids or said.prompt:
                self._tokens = _tokens(said.token_ids) or _tokens(said.prompt)
            if self._tokens is None and self._shape is _EMBEDDING:
                self._tokens = _tokens(said.input)
        return self._tokens

    @property
    def cache_salt(self) -> str:
        """See `Hints.cache_salt`."""
        if not self._said.cache_salt:
            return ""
        salt = _scalar(self._said.cache_salt)
        return salt if isinstance(salt, str) else ""

    @property
    def stream(self) -> bool:
        """See `Hints.stream`."""
        return _scalar(self._said.stream) is True

    @property
    def max_tokens(self) -> int | None:
        """See `Hints.max_tokens`."""
        said = self._said
        fields = (said.max_completion_tokens, said.max_tokens, said.max_output_tokens)
        limits = [_scalar(field) for field in fields]
        parameters = _value(said.sampling_params)
        if isinstance(parameters, dict):
            limits.append(parameters.get("max_tokens"))
        return next((each for each in limits if type(each) is int and 0 < each <= MAX_TOKENS), None)


def _value(field: msgspec.Raw) -> Any:
    """What a field holds, or the field itself if it has too many parts; None if it is absent, or
    was skipped without complaint and cannot be read."""
    if not field:
        return None
    if _many(field):
        return field
    try:
        return msgspec.json.decode(field)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _many(value: msgspec.Raw | memoryview) -> bool:
    """Whether taking it apart would take too long."""
    if len(memoryview(value)) <= 2 * MAX_OPENINGS:  # what is opened is closed
        return False
    marks = bytes(value).translate(None, _NO_MARKS)
    commas = marks.count(b",")
    return commas > MAX_COMMAS or len(marks) - commas > MAX_OPENINGS


def _scalar(field: msgspec.Raw) -> Any:
    if len(memoryview(field)) > _SCALAR_BYTES and memoryview(field)[0] != _QUOTE:
        return None
    return _value(field)


def _tokens(field: msgspec.Raw) -> Sequence[int] | None:
    if not field or memoryview(field)[0] != _LIST or _many(field):
        return None
    try:
        return _ids(field) or None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _prompt(shape: Shape, said: Said, size: int) -> bytes:
    """Tools, then what the model is told, then what it is asked; see `Hints.beginning`."""
    tools = bytes(said.tools)
    prompt = b"" if tools == b"null" else tools
    for field, texts in _fields(shape, said):
        if len(prompt) >= size:
            break
        if isinstance(field, list):
            prompt += _said_in(field)
        elif field is not None:
            prompt += _beginning(field, texts, size - len(prompt))
    return prompt


_FIELDS: dict[Shape, Callable[[Said], tuple[tuple[_Field, _Texts], ...]]] = {
    Shape.RESPONSE: lambda said: ((said.instructions, _text), (said.input, _turns)),
    Shape.MESSAGES: lambda said: ((said.system, _text), (_messages(said), _turns)),
    Shape.EMBEDDING: lambda said: ((said.input, _text),),
    Shape.CONVERSATION: lambda said: ((said.items, _turns),),
}
"""What is read of shapes that are neither chats nor completions."""


def _fields(shape: Shape, said: Said) -> tuple[tuple[_Field, _Texts], ...]:
    special = _FIELDS.get(shape)
    if special is not None:
        return special(said)
    messages = _messages(said)
    return ((said.prompt, _text),) if messages is None else ((messages, _turns),)


def _messages(said: Said) -> _Field:
    """None = absent or null."""
    if isinstance(said, SaidInTurns):
        return said.messages
    if isinstance(said, SaidRaw) and said.messages and memoryview(said.messages)[0] != _NULL:
        return said.messages
    return None


def _beginning(field: msgspec.Raw, texts: _Texts, size: int) -> bytes:
    """Texts of a field; of one that is far longer than `size` only so much, where that is enough.

    JSON is somewhat longer than its texts: so is what is read.
    """
    data = memoryview(field)
    for longer in (size + size // 4, 2 * size) if len(data) > 4 * size else ():
        part = _texts_until(data, longer, texts)
        if part is None:
            break
        if len(part) >= size:
            return part
    if texts is _turns and field and not _many(field):
        try:
            return _said_in(_read_turns(field))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # not all of them are objects
    return b"".join(texts(_value(field)))


def _texts_until(data: memoryview, end: int, texts: _Texts) -> bytes | None:
    if _many(data[:end]):
        return None
    for less in _CUTS:
        value = _as_cut(opening(data, max(1, end - less)), texts)
        if value is not None:
            return b"".join(texts(value))
    return None


def _as_cut(value: Any, texts: _Texts) -> Any:
    """What can be taken of a value that was cut. A turn's role is read before all else in it, so
    one whose role is not known yet cannot; what a turn says is otherwise taken to stand there in
    the order in which it is read."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            return value
        return msgspec.Raw(_encode(value).rstrip(b']}"'))
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        last = value[-1]
        if texts is not _turns:
            value[-1] = _as_cut(last, texts)
        elif "role" in last:
            name = next(reversed(last))
            last[name] = _as_cut(last[name], _text)
        else:
            return None
    return value


_read_turns: Final = msgspec.json.Decoder(list[Turn]).decode


def _said_in(turns: list[Turn]) -> bytes:
    texts: list[bytes] = []
    for turn in turns:
        if isinstance(turn.role, str):
            texts.append(_utf8(turn.role))
        for part in (
            turn.reasoning_content,
            turn.content,
            turn.tool_calls,
            turn.arguments,
            turn.output,
        ):
            if type(part) is str:
                texts.append(part.encode("utf-8", "surrogatepass"))
            elif part is not None:
                texts.extend(_text(part))
    return b"".join(texts)


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
    elif isinstance(value, list):
        yield from _each(value)


def _each(values: Iterable[Any]) -> Iterator[bytes]:
    for value in values:
        if isinstance(value, str):
            yield _utf8(value)
        elif isinstance(value, dict | msgspec.Raw):
            yield from _text(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")

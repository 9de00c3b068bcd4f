"""Which model a request asks for, if its body is JSON; what else is said is kept for hints.

A body is refused only when it cannot be what its path promises. Whatever else is in it is the model
server's business: unknown shapes, odd numbers and new fields are routed like any other.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from epp_worker.extproc.multipart import form_model
from epp_worker.extproc.paths import Shape, names_model
from epp_worker.extproc.said import NOTHING_SAID, Said, read_at_once

MAX_MODEL_LENGTH: Final = 1024
"""Characters; longer than any served name, short enough for labels and logs."""

LENIENT_BYTES: Final = 64 * 1024
"""Up to this size a body that strict JSON refuses is shown to Python's own parser too: model
servers use it, and it takes NaN, a BOM and UTF-16. It is too slow to be asked about more."""

LEAST_INFLATED_BYTES: Final = 1024 * 1024
MAX_RATIO: Final = 64
"""A compressed body may become the one, or the other times as long. Text becomes 3 to 10 times as
long; 16 kB of deflate can be made to become 16 MiB, which takes 50 ms."""

MAX_MEMBERS: Final = 64
"""Members of a gzip body; each one's rest is copied, so their number must have a bound."""

_WBITS: Final = {"gzip": (31,), "x-gzip": (31,), "deflate": (47, -15)}
"""zlib's window bits by content coding; clients send `deflate` with and without zlib's frame."""

Header = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class BadBody:
    """Why a body cannot be routed; `message` is for the client and quotes nothing."""

    status: int
    message: str


_NOT_JSON: Final = BadBody(400, "The request body is not valid JSON.")
_NOT_OBJECT = BadBody(400, "The request body must be a JSON object whose 'model' is a string.")
NO_MODEL: Final = BadBody(400, "The request body must name a 'model'.")
_BAD_NAME: Final = BadBody(400, "'model' is too long or holds characters that are no text.")
_BAD_CODING: Final = BadBody(400, "The request body does not match its content-encoding.")
_TOO_LARGE: Final = BadBody(413, "The decompressed request body is too large.")


class Body:
    """A request body that can be routed.

    Attributes:
        model: the name it holds; None = it holds none.
        plain: the body without its content coding, if it is JSON or a form; b"" if it is not.
        packed: `plain` is a copy: the body itself has a coding.
        said: what the body says besides.
    """

    __slots__ = ("model", "packed", "plain", "said")

    def __init__(
        self,
        model: str | None,
        plain: bytes,
        packed: bool = False,
        said: Said = NOTHING_SAID,
    ) -> None:
        self.model: Final = model
        self.plain: Final = plain
        self.packed: Final = packed
        self.said: Final = said


NO_BODY: Final = Body(None, b"")


def body_of(body: bytes, header: Header, shape: Shape, *, largest: int) -> Body | BadBody:
    """What a whole request body says of its model.

    Args:
        header: looks up a request header by lower-case name.
        shape: what the path promises.
        largest: bytes that a decompressed copy may have.

    Returns:
        BadBody where the body cannot be what the path promises, or would become too large. A body
        of another kind, or with a coding that we cannot undo, is routed without a model.
    """
    (found, said), plain = _read(body), body
    if isinstance(found, str):
        return Body(found, plain, said=said)
    codings = _codings(header) if found is _NOT_JSON else []
    packed = bool(codings)
    if packed:
        if len(codings) > 1 or codings[0] not in _WBITS:
            return NO_BODY
        most = min(largest, max(LEAST_INFLATED_BYTES, MAX_RATIO * len(body)))
        inflated = _inflate(body, _WBITS[codings[0]], most)
        if isinstance(inflated, BadBody):
            found = inflated
        else:
            (found, said), plain = _read(inflated), inflated
        if found is _TOO_LARGE:
            return _TOO_LARGE
    if isinstance(found, str):
        return Body(found, plain, packed, said)
    promised = names_model(shape) and (header(":method") or "POST").upper() == "POST"
    if found is NO_MODEL:
        return Body(None, plain, packed, said)
    if promised:
        return found
    return NO_BODY if found is not _NOT_JSON else _of_form(plain, packed)


def _of_form(plain: bytes, packed: bool) -> Body:
    where = form_model(plain)
    if where is None:
        return NO_BODY
    try:
        model = checked(plain[slice(*where)].decode())
    except UnicodeDecodeError:
        return NO_BODY
    return Body(model, plain, packed) if isinstance(model, str) else NO_BODY


def read_model(body: bytes) -> str | BadBody:
    """The model that a JSON object names; `NO_MODEL` if it names none."""
    return _read(body)[0]


def _read(body: bytes) -> tuple[str | BadBody, Said]:
    try:
        said = read_at_once(body)
    except msgspec.ValidationError:
        return _NOT_OBJECT, NOTHING_SAID
    except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return _read_leniently(body), NOTHING_SAID
    return checked(said.model), said


def _read_leniently(body: bytes) -> str | BadBody:
    if not body or len(body) > LENIENT_BYTES:
        return _NOT_JSON
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return _NOT_JSON
    if not isinstance(value, dict):
        return _NOT_OBJECT
    model = value.get("model")
    return checked(model) if model is None or isinstance(model, str) else _NOT_OBJECT


def checked(model: str | None) -> str | BadBody:
    """A name of a model that may go into labels, logs and stores."""
    if not model:
        return NO_MODEL
    if len(model) > MAX_MODEL_LENGTH:
        return _BAD_NAME
    try:
        model.encode()  # a lone surrogate would break labels, logs and stores far from here
    except UnicodeEncodeError:
        return _BAD_NAME
    return model


def _codings(header: Header) -> list[str]:
    listed = (header("content-encoding") or "").lower().split(",")
    return [coding for part in listed if (coding := part.strip()) not in ("", "identity")]


def _inflate(body: bytes, forms: tuple[int, ...], largest: int) -> bytes | BadBody:
    found: bytes | BadBody = _BAD_CODING
    for wbits in forms:
        found = _inflate_members(body, wbits, largest)
        if found is not _BAD_CODING:
            break
    return found


def _inflate_members(body: bytes, wbits: int, largest: int) -> bytes | BadBody:
    """gzip may be several members one after another (RFC 1952, 2.2): their contents, joined."""
    parts: list[bytes] = []
    size = 0
    for _ in range(MAX_MEMBERS):
        decoder = zlib.decompressobj(wbits)
        try:
            part = decoder.decompress(body, largest + 1 - size)
        except zlib.error:
            return _BAD_CODING
        size += len(part)
        if size > largest:
            return _TOO_LARGE
        if not decoder.eof:
            return _BAD_CODING
        parts.append(part)
        body = decoder.unused_data
        if not body:
            return b"".join(parts)
    return _BAD_CODING

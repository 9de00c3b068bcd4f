"""Which model a request asks for: reads `model` and nothing else of the body.

A body is refused only when it cannot be what its path promises. Whatever else is in it is the model
server's business: unknown shapes, odd numbers and new fields are routed like any other.
"""

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

MAX_MODEL_LENGTH = 1024
"""Characters; longer than any served name, short enough for labels and logs."""

LENIENT_BYTES = 64 * 1024
"""Up to this size a body that strict JSON refuses is shown to Python's own parser too: model
servers use it, and it takes NaN, a BOM and UTF-16. It is too slow to be asked about more."""

LEAST_INFLATED_BYTES = 1024 * 1024
MAX_RATIO = 64
"""A compressed body may become the one, or the other times as long. Text becomes 3 to 10 times as
long; 16 kB of deflate can be made to become 16 MiB, which takes 50 ms."""

MAX_MEMBERS = 64
"""Members of a gzip body; each one's rest is copied, so their number must have a bound."""

NAMED_PATHS = ("completions", "embeddings", "responses", "messages")
"""Endings of the paths whose JSON body names a model."""

_PATH_HEADERS = (":path", "x-original-path", "x-forwarded-path")
_WBITS = {"gzip": (31,), "x-gzip": (31,), "deflate": (47, -15)}
"""zlib's window bits by content coding; clients send `deflate` with and without zlib's frame."""

Header = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class BadBody:
    """Why a body cannot be routed; `message` is for the client and quotes nothing."""

    status: int
    message: str


_NOT_JSON = BadBody(400, "The request body is not valid JSON.")
_NOT_OBJECT = BadBody(400, "The request body must be a JSON object whose 'model' is a string.")
_NO_MODEL = BadBody(400, "The request body must name a 'model'.")
_BAD_NAME = BadBody(400, "'model' is too long or holds characters that are no text.")
_BAD_CODING = BadBody(400, "The request body does not match its content-encoding.")
_TOO_LARGE = BadBody(413, "The decompressed request body is too large.")


class _Named(msgspec.Struct):
    model: str | None = None


_decode = msgspec.json.Decoder(_Named).decode


def model_of(body: bytes, header: Header, *, largest: int) -> str | BadBody | None:
    """The model that a whole request body names.

    Args:
        header: looks up a request header by lower-case name.
        largest: bytes that a decompressed copy may have.

    Returns:
        The name; None where the request can do without one (its path promises none, or the body
        has a coding that we cannot undo); BadBody where it cannot.
    """
    found = _read(body)
    if isinstance(found, str):
        return found
    codings = _codings(header)
    if codings and found is _NOT_JSON:
        if len(codings) > 1 or codings[0] not in _WBITS:
            return None
        most = min(largest, max(LEAST_INFLATED_BYTES, MAX_RATIO * len(body)))
        plain = _inflate(body, _WBITS[codings[0]], most)
        found = plain if isinstance(plain, BadBody) else _read(plain)
        if found is _TOO_LARGE:
            return found
    if isinstance(found, str) or _promises_model(header, body):
        return found
    return None


def _read(body: bytes) -> str | BadBody:
    try:
        model = _decode(body).model
    except msgspec.ValidationError:
        return _NOT_OBJECT
    except (msgspec.DecodeError, UnicodeError, ValueError, RecursionError):
        return _read_leniently(body)
    return _checked(model)


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
    return _checked(model) if model is None or isinstance(model, str) else _NOT_OBJECT


def _checked(model: str | None) -> str | BadBody:
    if not model:
        return _NO_MODEL
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


def _promises_model(header: Header, body: bytes) -> bool:
    if (header(":method") or "POST").upper() != "POST":
        return False
    path = next((value for name in _PATH_HEADERS if (value := header(name))), None)
    if path is None:
        return bool(body)  # a gateway without pseudo headers: a body is taken for a completion
    return path.partition("?")[0].rstrip("/").endswith(NAMED_PATHS)

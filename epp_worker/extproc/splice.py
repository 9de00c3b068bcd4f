"""Another model's name in a body of which no other byte changes.

The name is found by its spelling, and the find is proved: the body with another name at that place
must be read as one for that name. So a nested field of the same name is never touched, and of
several equal keys it is the one that counts.
"""

import re

import msgspec

from epp_worker.extproc.model import NO_MODEL, read_model
from epp_worker.extproc.multipart import form_model

MAX_PROVED_BYTES = 64 * 1024 * 1024
"""So much may be read to prove finds, of all places in one body."""

_MIN_PROOFS = 4


def _spelled(word: str) -> bytes:
    """A word in JSON, each of its letters as such or as an escape."""
    return b"".join(
        rb"(?:%s|\\u00(?i:%02x))" % (re.escape(letter.encode()), ord(letter)) for letter in word
    )


# Possessive: a name may be as long as the body, and a step that can be taken back costs 136 bytes.
_MODEL = re.compile(rb'"%s"[ \t\r\n]*+:[ \t\r\n]*+("(?:[^"\\]++|\\.)*+"|null)' % _spelled("model"))


def with_model(body: bytes, model: str) -> bytes | None:
    """A JSON object, or multipart form, that asks for `model`; None if that cannot be done.

    A JSON object that names none, or null, gets one.
    """
    form = form_model(body)
    if form is not None:
        if "\r" in model or "\n" in model:
            return None  # it would end the field
        start, stop = form
        return b"".join((body[:start], model.encode(), body[stop:]))
    old = read_model(body)
    if old is not NO_MODEL and not isinstance(old, str):
        return None
    new = msgspec.json.encode(model)
    proofs = max(_MIN_PROOFS, MAX_PROVED_BYTES // (len(body) or 1))
    for found in _MODEL.finditer(body):
        if (_read(found[1]) or NO_MODEL) != old:
            continue
        changed = b"".join((body[: found.start(1)], new, body[found.end(1) :]))
        if read_model(changed) == model:
            return changed
        proofs -= 1
        if not proofs:
            return None
    return _inserted(body, new, model) if old is NO_MODEL else None


def _read(value: bytes) -> str | None:
    try:
        read = msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError):
        return ""
    return read if isinstance(read, str) else None


def _inserted(body: bytes, new: bytes, model: str) -> bytes | None:
    start = body.find(b"{") + 1
    rest = body[start:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    changed = b"".join((body[:start], b'"model":', new, comma, rest))
    return changed if read_model(changed) == model else None

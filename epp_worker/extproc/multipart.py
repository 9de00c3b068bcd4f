"""The `model` of a multipart form (an upload of audio, say), found without reading the files."""

import re

SEARCH_BYTES = 64 * 1024
"""So much of the form's beginning and of its end is looked at: clients put short fields there."""

_FIELD = re.compile(
    rb'content-disposition:[ \t]*form-data;[ \t]*name="?model"?[ \t]*\r\n'
    rb"(?:[^\r\n]++\r\n){0,16}+\r\n([^\r\n]*+)\r\n--",
    re.IGNORECASE,
)


def form_model(body: bytes) -> tuple[int, int] | None:
    """Where in a form the value of its field `model` stands; None if it is no form, or has none."""
    if not body.startswith(b"--"):
        return None
    found = _FIELD.search(body, 0, SEARCH_BYTES)
    if found is None and len(body) > SEARCH_BYTES:
        found = _FIELD.search(body, max(0, len(body) - SEARCH_BYTES))
    return None if found is None else found.span(1)

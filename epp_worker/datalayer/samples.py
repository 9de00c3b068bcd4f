"""One line of a metrics page: name, labels, value, timestamp.

Pages come from pods that anybody may run, so every step is linear in the line's length.
"""

import re

_LABEL = re.compile(rb'[\s,]*([a-zA-Z_]\w*)\s*=\s*"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
MAX_TIMESTAMP_DIGITS = 20


def split_sample(rest: bytes) -> tuple[bytes, bytes]:
    """Labels (without braces) and value of a sample, given what follows its family's name.

    Labels that have no end leave an empty value, which is no number.
    """
    close = rest.rfind(b"}")
    if close < 0:
        return (b"", b"") if b"{" in rest else (b"", rest)
    # No value has a brace, so unless the line is odd the last one ends the labels: 0.4 us, not 3.
    if rest[:1] == b"{" and rest[close - 1 : close] in b'"{' and b"#" not in rest[close:]:
        return rest[1:close], rest[close + 1 :]
    return _split_odd_sample(rest.lstrip(b" \t"))


def _split_odd_sample(rest: bytes) -> tuple[bytes, bytes]:
    if rest[:1] != b"{":
        return b"", rest
    at, close = 1, 0
    while True:
        if close < at:  # looked for again only if it stood in a label's value: linear in the line
            close = rest.find(b"}", at)
            if close < 0:
                return b"", b""
        quote = rest.find(b'"', at, close)
        if quote < 0:
            return rest[1:close], rest[close + 1 :]
        at = _closing_quote(rest, quote + 1) + 1
        if at == 0:
            return b"", b""


def _closing_quote(text: bytes, at: int) -> int:
    """Where the label value that begins at `at` ends; -1 = nowhere."""
    while True:
        quote = text.find(b'"', at)
        if quote < 0:
            return -1
        slashes = len(text[at:quote]) - len(text[at:quote].rstrip(b"\\"))
        if slashes % 2 == 0:
            return quote
        at = quote + 1


def labels_of(text: bytes) -> dict[bytes, bytes]:
    """Labels by name, as far as they can be read; see `split_sample`."""
    found: dict[bytes, bytes] = {}
    at = 0
    while (match := _LABEL.match(text, at)) is not None:
        name, value = match.groups()
        found[name] = _ESCAPE.sub(_unescaped, value) if b"\\" in value else value
        at = match.end()
    return found


def _unescaped(match: re.Match[bytes]) -> bytes:
    character = match[1]
    if character == b"n":
        return b"\n"
    return character if character in b'\\"' else match[0]


def value_of(text: bytes) -> tuple[float, int] | None:
    """Value and timestamp (ms; 0 = none) of what follows the labels; None if it is no sample."""
    parts = text.split()
    if not parts or len(parts) > 2 or b"_" in parts[0]:  # Python's float takes 1_000
        return None
    try:
        value = float(parts[0])
        if len(parts) == 1:
            return value, 0
        if len(parts[1]) > MAX_TIMESTAMP_DIGITS or b"_" in parts[1]:
            return None
        return value, int(parts[1])
    except ValueError:
        return None

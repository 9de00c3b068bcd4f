"""The model's name in a response as the client knows it, when it was asked for under another.

Only the value of a `"model"` key changes, and only where it is the very name that was asked for. A
name that is cut by the border of two chunks is found too: the bytes that may be its beginning wait
for the next chunk, and nothing else does.
"""

import json
import re

_KEYS = (b'"model":', b'"model": ')


class Renaming:
    """Changes the bytes of one response body."""

    __slots__ = ("_held", "_longest", "_new", "_pattern", "_whole")

    def __init__(self, asked: str, known: str) -> None:
        """Args:
        asked: what the model server was asked for.
        known: what the client asked for.
        """
        spellings = sorted({json.dumps(asked), json.dumps(asked, ensure_ascii=False)})
        names = b"|".join(re.escape(each.encode()) for each in spellings)
        self._pattern = re.compile(rb'("model": ?)(?:%s)' % names)
        self._whole = tuple(key + name.encode() for key in _KEYS for name in spellings)
        self._longest = max(map(len, self._whole))
        self._new = json.dumps(known, ensure_ascii=False).encode()
        self._held = b""

    def feed(self, chunk: bytes, *, last: bool) -> bytes:
        """The next bytes to pass on, of those that came; all of them with the `last` chunk."""
        data = self._held + chunk
        done = 0
        parts: list[bytes] = []
        for found in self._pattern.finditer(data):
            parts += (data[done : found.end(1)], self._new)
            done = found.end()
        keep = len(data) if last else self._begun(data, done)
        self._held = data[keep:]
        parts.append(data[done:keep])
        return b"".join(parts)

    def rest(self) -> bytes:
        """What still waits; nothing more will come."""
        held, self._held = self._held, b""
        return held

    def _begun(self, data: bytes, start: int) -> int:
        """Where the end of `data`, from `start` on, may be the beginning of a name."""
        at = data.find(b'"', max(start, len(data) - self._longest + 1))
        while at >= 0:
            end = data[at:]
            if any(whole.startswith(end) for whole in self._whole):
                return at
            at = data.find(b'"', at + 1)
        return len(data)

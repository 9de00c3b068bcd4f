"""Lines out of a stream of chunks, in linear time and with a bound on what is held."""


class LineTooLong(Exception):
    """More than the bound came without a line's end."""


class Lines:
    """Cuts chunks at b"\\n". What is held never exceeds the bound by more than one chunk."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that `chunk` completes, without their ends; blank ones are left out.

        Raises:
            LineTooLong: a line, complete or not, is longer than the bound.
        """
        *ended, rest = chunk.split(b"\n")
        lines = []
        for piece in ended:
            self._keep(piece)
            line = self.rest()
            if line:
                lines.append(line)
        self._keep(rest)
        return lines

    def rest(self) -> bytes:
        """What is held of a line without an end; nothing is held afterwards."""
        line = b"".join(self._parts).strip()
        self._parts.clear()
        self._held = 0
        return line

    def _keep(self, piece: bytes) -> None:
        self._held += len(piece)
        if self._held > self._max_bytes:
            raise LineTooLong
        if piece:
            self._parts.append(piece)

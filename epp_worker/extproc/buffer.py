"""The body of one request as it comes in, held at little more than its size."""

MAX_PIECES = 64
"""So many pieces are kept as they came, to be joined in one step. From then on they are copied
into one: a byte in a piece of its own takes forty."""


class BodyBuffer:
    """Pieces of a body, in order."""

    __slots__ = ("_merged", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._merged: bytearray | None = None

    def add(self, piece: bytes) -> None:
        """Append; an empty piece leaves no trace."""
        if self._merged is not None:
            self._merged += piece
        elif piece:
            self._pieces.append(piece)
            if len(self._pieces) > MAX_PIECES:
                self._merged = bytearray().join(self._pieces)
                self._pieces = []

    def take(self) -> bytes:
        """The whole body; nothing is left here."""
        pieces, merged = self._pieces, self._merged
        self.clear()
        if merged is not None:
            return bytes(merged)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def clear(self) -> None:
        """Let go of everything."""
        self._pieces = []
        self._merged = None

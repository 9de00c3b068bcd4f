"""The body of one request as it comes in, held at little more than its size."""

from io import BytesIO


class BodyBuffer:
    """Pieces of a body, in order.

    From the second piece on they are copied into one block as they come: a byte in a piece of its
    own takes forty, and the end of a body of 10 MiB would take 7 ms longer with pieces to join.
    `BytesIO` hands its block over without another copy.
    """

    __slots__ = ("_block", "_first")

    def __init__(self) -> None:
        self._first = b""
        self._block: BytesIO | None = None

    def add(self, piece: bytes) -> None:
        """Append; an empty piece leaves no trace."""
        if self._block is not None:
            self._block.write(piece)
        elif not self._first:
            self._first = piece
        elif piece:
            self._block = BytesIO()
            self._block.write(self._first)
            self._block.write(piece)
            self._first = b""

    def take(self) -> bytes:
        """The whole body; nothing is left here."""
        block, first = self._block, self._first
        self.clear()
        return first if block is None else block.getvalue()

    def clear(self) -> None:
        """Let go of everything."""
        self._first = b""
        self._block = None

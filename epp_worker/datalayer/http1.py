"""Reading one HTTP/1.1 response as its bytes arrive: just what a metrics page needs.

Content-Length, chunked, or up to the end of the connection. Redirects and every other status than
200 are failures; nothing is decompressed; everything that the peer can make us hold is bounded.
"""

from collections.abc import Callable

MAX_HEAD_BYTES = 16 * 1024
_MAX_SIZE_LINE = 256
_FEW_CHUNKS = 2000
_SMALL_CHUNK_BYTES = 64
"""After so many chunks they must be this long on average: each costs the same time to read."""


class BadResponse(ValueError):
    """The peer's answer is no usable response."""


class ResponseReader:
    """State of one response.

    Attributes:
        done: the response is complete; bytes after it are not expected.
        reusable: the connection may carry another request afterwards.
        received: bytes that arrived so far.
    """

    __slots__ = (
        "_body",
        "_buffer",
        "_chunks",
        "_left",
        "_limit",
        "_part",
        "_pieces",
        "done",
        "received",
        "reusable",
    )

    def __init__(self, body: Callable[[bytes], None], *, limit: int) -> None:
        """
        Args:
            body: takes the body's bytes, decoded from chunks.
            limit: most bytes of the whole response.
        """
        self.done = False
        self.reusable = False
        self.received = 0
        self._body = body
        self._limit = limit
        self._buffer = b""
        self._left = 0
        self._part: Callable[[bytes, int], int] = self._head
        self._pieces: list[bytes] = []
        self._chunks = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            BadResponse: unusable; also what the `body` callback raises.
        """
        self.received += len(data)
        if self.received > self._limit:
            raise BadResponse(f"more than {self._limit} bytes")
        if self._buffer:
            data = self._buffer + data
            self._buffer = b""
        at = 0
        while at < len(data) and not self.done:
            after = self._part(data, at)
            if after < 0:  # the part needs more than has come
                self._buffer = data[at:]
                break
            at = after
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            self._body(b"".join(pieces))
        if self.done and at < len(data):
            self.reusable = False

    def eof(self) -> None:
        """The peer closed.

        Raises:
            BadResponse: in the middle of the response.
        """
        if not self.done and self._part != self._to_the_end:
            raise BadResponse("the connection ended inside the response")
        self.done = True
        self.reusable = False

    def _head(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n\r\n", at)
        if end < 0 or end - at > MAX_HEAD_BYTES:
            if len(data) - at > MAX_HEAD_BYTES:
                raise BadResponse("the response head is too long")
            return -1
        status, *lines = data[at:end].split(b"\r\n")
        version, _, code = status.partition(b" ")
        if not version.startswith(b"HTTP/1.") or code[:4].strip() != b"200":
            raise BadResponse(f"answered {code[:3].decode('latin-1')!r} instead of 200")
        headers = {}
        for line in lines:
            name, _, value = line.partition(b":")
            headers[name.strip().lower()] = value.strip().lower()
        self._choose_body(headers)
        self.reusable = self._part != self._to_the_end and _keeps_alive(version, headers)
        return end + 4

    def _choose_body(self, headers: dict[bytes, bytes]) -> None:
        if b"chunked" in headers.get(b"transfer-encoding", b""):
            self._part = self._chunk_size
        elif b"content-length" in headers:
            length = headers[b"content-length"]
            if not length.isdigit() or len(length) > 18:
                raise BadResponse("its content-length is no number")
            self._left = int(length)
            if self._left > self._limit:
                raise BadResponse(f"more than {self._limit} bytes")
            self._part = self._sized
            self.done = self._left == 0
        else:
            self._part = self._to_the_end

    def _sized(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._left]
        self._left -= len(piece)
        self._pieces.append(piece)
        self.done = self._left == 0
        return at + len(piece)

    def _to_the_end(self, data: bytes, at: int) -> int:
        self._pieces.append(data[at:])
        return len(data)

    def _chunk_size(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > _MAX_SIZE_LINE:
                raise BadResponse("a chunk's size has no end")
            return -1
        digits = data[at:end].partition(b";")[0].strip()
        try:
            size = int(digits, 16) if len(digits) <= 8 and digits.isalnum() else -1
        except ValueError:
            size = -1
        if size < 0:
            raise BadResponse("a chunk's size is no number")
        self._chunks += 1
        if self._chunks > _FEW_CHUNKS and self.received < self._chunks * _SMALL_CHUNK_BYTES:
            raise BadResponse("its chunks are too small")
        self._left = size
        self._part = self._chunk if size else self._trailer
        return end + 2

    def _chunk(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._left]
        self._left -= len(piece)
        self._pieces.append(piece)
        if self._left == 0:
            self._part = self._chunk_end
        return at + len(piece)

    def _chunk_end(self, data: bytes, at: int) -> int:
        if len(data) - at < 2:
            return -1
        if data[at : at + 2] != b"\r\n":
            raise BadResponse("a chunk is longer than its size")
        self._part = self._chunk_size
        return at + 2

    def _trailer(self, data: bytes, at: int) -> int:
        end = data.find(b"\r\n", at)
        if end < 0:
            if len(data) - at > MAX_HEAD_BYTES:
                raise BadResponse("a trailer has no end")
            return -1
        self.done = end == at
        return end + 2


def _keeps_alive(version: bytes, headers: dict[bytes, bytes]) -> bool:
    connection = headers.get(b"connection", b"")
    return version == b"HTTP/1.1" and b"close" not in connection

"""Reading one HTTP/1.1 response as its bytes arrive: just what a metrics page needs.

Content-Length, chunked, or up to the end of the connection. Redirects and every other status than
200 are failures. The content's type is not looked at: frameworks call a metrics page HTML. Nobody
is asked for gzip, but a server or sidecar that insists on it is understood. Everything that the
peer can make us hold is bounded.
"""

import zlib
from collections.abc import Callable

MAX_HEAD_BYTES = 16 * 1024
HOLD_BYTES = 128 * 1024
"""An ordinary page is handed on as one piece, however many packets it came in; what is longer, as
it arrives."""
_MAX_SIZE_LINE = 256
_GZIP_WINDOW = 31
MAX_GZIP_RATIO = 64
"""Metrics shrink to a tenth; what shrinks more than this would keep the loop busy on purpose."""
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
        "_inflate",
        "_inflated",
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
            body: takes the body's bytes, decoded from chunks and gzip.
            limit: most bytes of the whole response, and of its body.
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
        self._inflate: zlib._Decompress | None = None
        self._inflated = 0

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
        if self.done or self.received > HOLD_BYTES:
            self._hand_on()
        if self.done:
            if at < len(data):
                self.reusable = False
            self._check_unzipped()

    def feed_all(self, buffer: bytearray, size: int) -> int:
        """Take the first `size` bytes of `buffer`, the first of the response.

        Returns where the body begins if they are one response, the whole of it and plain; then it
        was not handed on. Else -1. Spares an ordinary page two copies and their page faults.

        Raises:
            BadResponse: see `feed`.
        """
        end = buffer.find(b"\r\n\r\n", 0, min(size, MAX_HEAD_BYTES)) + 4
        if end < 4 or size > self._limit:
            self.feed(bytes(buffer[:size]))
            return -1
        self._head(bytes(buffer[:end]), 0)
        self.received += end
        if self._part == self._sized and self._left == size - end and self._inflate is None:
            self.received = size
            self.done = True
            return end
        self.feed(bytes(buffer[end:size]))
        return -1

    def eof(self) -> None:
        """The peer closed.

        Raises:
            BadResponse: in the middle of the response.
        """
        if not self.done and self._part != self._to_the_end:
            raise BadResponse("the connection ended inside the response")
        self.done = True
        self.reusable = False
        self._hand_on()
        self._check_unzipped()

    def _hand_on(self) -> None:
        """Give away what was held."""
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            body = b"".join(pieces)
            self._body(body if self._inflate is None else self._unzip(self._inflate, body))

    def _unzip(self, inflate: "zlib._Decompress", data: bytes) -> bytes:
        most = min(self._limit, 65_536 + MAX_GZIP_RATIO * self.received) - self._inflated
        try:
            found = inflate.decompress(data, most + 1)
        except zlib.error as error:
            raise BadResponse("its gzip is broken") from error
        if len(found) > most:
            raise BadResponse("more than is allowed comes out of its gzip")
        self._inflated += len(found)
        return found

    def _check_unzipped(self) -> None:
        if self._inflate is not None and not self._inflate.eof:
            raise BadResponse("its gzip was cut short")

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
        coding = headers.get(b"content-encoding", b"identity")
        if coding in (b"gzip", b"x-gzip"):
            self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        elif coding not in (b"", b"identity"):
            raise BadResponse(f"its content-encoding is {coding[:32].decode('latin-1')!r}")
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

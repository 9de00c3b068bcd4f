"""One HTTP/1.1 response, in any number of pieces."""

import pytest

from epp_worker.datalayer import pace
from epp_worker.datalayer.http1 import MAX_HEAD_BYTES, BadResponse, ResponseReader
from fleet.settings.model import ScrapeSettings


def read(data: bytes, *, size: int = 1 << 20, limit: int = 1 << 20) -> tuple[bytes, ResponseReader]:
    body = bytearray()
    reader = ResponseReader(body.extend, limit=limit)
    for start in range(0, len(data), size):
        reader.feed(data[start : start + size])
    return bytes(body), reader


GOOD = {
    "sized": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_good(name: str, size: int) -> None:
    """Complete, reusable, and the body is the body, wherever it is cut."""
    body, reader = read(GOOD[name], size=size)
    assert (body, reader.done, reader.reusable) == (b"hello", True, True)


def test_up_to_the_end() -> None:
    """Without a length the end of the connection is the end of the page."""
    body: list[bytes] = []
    reader = ResponseReader(body.append, limit=1000)
    reader.feed(b"HTTP/1.0 200 OK\r\n\r\nhel")
    reader.feed(b"lo")
    assert not reader.done
    reader.eof()
    assert (body, reader.done, reader.reusable) == ([b"hello"], True, False)


@pytest.mark.parametrize("name", GOOD)
def test_cut_short(name: str) -> None:
    """A connection that ends inside the response is a failure."""
    _, reader = read(GOOD[name][:-1])
    with pytest.raises(BadResponse):
        reader.eof()


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 << 20),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 3000,
        b"x" * (MAX_HEAD_BYTES + 1),
    ],
)
def test_refused(data: bytes) -> None:
    """Other statuses, other protocols, nonsense and too much are refused."""
    with pytest.raises(BadResponse):
        read(data)


def test_pace() -> None:
    """Twice per request within 50 ms..30 s; stretched to the budget; back-off up to 5 s."""
    settings = ScrapeSettings()
    rates = [0.0, 0.001, 1.0, 5.0, 1000.0]
    assert [pace.base_interval(r, settings) for r in rates] == [30.0, 30.0, 0.5, 0.1, 0.05]
    assert pace.stretch(8000, 0.0005, settings) == pytest.approx(16)
    assert pace.stretch(10, 0.0005, settings) == 1
    assert [pace.back_off(n) for n in (1, 2, 5, 6, 10_000)] == [0.25, 0.5, 4.0, 5.0, 5.0]

"""One HTTP/1.1 response, in any number of pieces."""

import gzip
import random

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
    assert (bytes(body), reader.done, reader.reusable) == (b"hello", True, True)


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


def gzipped(body: bytes, *, head: bytes = b"", cut: int = 0) -> bytes:
    packed = gzip.compress(body)
    packed = packed[: len(packed) - cut]
    return (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n%sContent-Length: %d\r\n\r\n"
        % (head, len(packed))
        + packed
    )


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_gzip_is_understood(size: int) -> None:
    """From a server or sidecar that insists on it although nobody asked."""
    body, reader = read(gzipped(b"x 1\n" * 1000), size=size)
    assert (body, reader.done, reader.reusable) == (b"x 1\n" * 1000, True, True)


@pytest.mark.parametrize(
    "data",
    [
        gzipped(b"x 1\n" * 50_000, cut=9),
        gzipped(b"x 1\n").replace(b"\x1f\x8b", b"\x1f\x8c"),
        gzipped(b"\0" * 20_000_000),
        gzipped(random.Random(1).randbytes(900_000)),
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["cut", "broken", "bomb", "long", "other", "empty"],
)
def test_bad_codings_are_refused(data: bytes) -> None:
    """Cut, broken, unknown, or more than is good for us: neither 20 MB from 20 kB nor more than
    the limit."""
    with pytest.raises(BadResponse):
        read(data, limit=800_000)


@pytest.mark.parametrize("extra", [b"", b"y"])
def test_a_whole_response_is_not_copied(extra: bytes) -> None:
    """It stays where it was read to; whatever is more, or less, than one is handed on."""
    buffer = bytearray(GOOD["sized"] + extra + b"rubbish of the last read")
    body = bytearray()
    reader = ResponseReader(body.extend, limit=1000)
    begin = reader.feed_all(buffer, len(GOOD["sized"]) + len(extra))
    assert reader.done
    if extra:
        assert (begin, bytes(body), reader.reusable) == (-1, b"hello", False)
    else:
        assert bytes(buffer[begin : begin + 5]) == b"hello"
        assert (bytes(body), reader.reusable) == (b"", True)


@pytest.mark.parametrize("name", GOOD)
def test_the_first_read_may_be_any_part(name: str) -> None:
    """Wherever the first read ends, the rest follows."""
    for cut in range(1, len(GOOD[name])):
        body = bytearray()
        reader = ResponseReader(body.extend, limit=1000)
        assert reader.feed_all(bytearray(GOOD[name]), cut) == -1
        reader.feed(GOOD[name][cut:])
        assert (bytes(body), reader.done, reader.reusable) == (b"hello", True, True)

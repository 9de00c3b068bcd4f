"""Messages made to cost much: read no further than a gateway's would have to be."""

import gzip
import sys
import tracemalloc

import pytest

from epp_worker.extproc import messages
from epp_worker.extproc.buffer import BodyBuffer
from epp_worker.extproc.messages import MAX_HEAD_BYTES, MAX_HEADERS, Headers
from epp_worker.extproc.model import BadBody, Body, body_of
from epp_worker.extproc.paths import Shape
from epp_worker.extproc.phases import Kind
from epp_worker.extproc.replies import varint
from epp_worker.scheduling.subset import MAX_ITEMS, normalise
from fleet.errors import FormatError
from tests.unit import extproc_messages as make

MIB = 1024 * 1024
ONE = frozenset(("10.0.0.1:8000",))


def field(tag: bytes, content: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return tag + varint(len(content)) + content


@pytest.mark.parametrize(
    "message",
    [
        make.request_headers({"x": "a" * MAX_HEAD_BYTES}),
        field(b"\x12", b"\x0a\x00" * MAX_HEAD_BYTES),
        b"\x22\x00" + b"\x42\x00" * MAX_HEAD_BYTES,
        b"\x22\x00" + field(b"\x42", b"a" * MAX_HEAD_BYTES),
        b"\x50\x01" + field(b"\x22", b"a" * MAX_HEAD_BYTES),
        b"\x22" + b"\xff" * MAX_HEAD_BYTES,
        b"\x00" * (MAX_HEAD_BYTES + 1),
    ],
    ids=["header", "headers", "companions", "metadata", "odd order", "length", "nonsense"],
)
def test_more_than_any_gateway_sends_beside_a_body(message: bytes) -> None:
    """2 bytes of a message may become an object of 100: such messages are not even parsed."""
    with pytest.raises(FormatError):
        messages.read(message)


def test_a_body_may_be_as_long_as_it_likes_here() -> None:
    """Its bound is the budget's; what stands beside it does not count it."""
    body = make.request_body(b"a" * 2 * MAX_HEAD_BYTES, end_of_stream=True, subset=list(ONE))
    message = messages.read(body)
    assert message.kind is Kind.REQUEST_BODY
    assert len(messages.body_part(message)[0]) == 2 * MAX_HEAD_BYTES
    assert messages.subset_hint(message) == ONE


def test_many_top_level_fields_are_read_right() -> None:
    """Beyond a few they are left to the protobuf library, which merges them all the same."""
    hint = make.request_headers(subset=list(ONE))
    many = make.request_headers() + b"\x42\x00" * 1000
    message = messages.read(many)
    assert message.kind is Kind.REQUEST_HEADERS
    assert Headers(message).get(":method") == "POST"
    many = hint + b"\x42\x00" * 1000
    assert messages.subset_hint(messages.read(many)) == ONE


def test_end_of_stream_behind_many_fields() -> None:
    """Header maps that repeat without end are stepped over only so far; the answer stays right."""
    part = b"\x0a\x00" * 5000 + b"\x18\x01"
    assert messages.headers_end_stream(messages.read(field(b"\x12", part)))


def test_headers_are_looked_at_up_to_a_number() -> None:
    """Their number is bounded, as their bytes are, where each of them must be made an object."""
    one = field(b"\x0a", field(b"\x0a", b"a") + field(b"\x1a", b"b"))
    last = field(b"\x0a", field(b"\x0a", b"late") + field(b"\x1a", b"b"))
    for before, found in ((MAX_HEADERS - 1, "b"), (MAX_HEADERS, None)):
        repeated = field(b"\x0a", field(b"\x0a", b"late") + field(b"\x1a", b"a"))
        part = field(b"\x0a", repeated + one * (before - 1) + last)
        assert Headers(messages.read(field(b"\x12", part))).get("late") == (found or "a")


def test_a_hint_of_nothing_but_commas() -> None:
    """16 MiB of commas took 10 s: what is no address counts as an item too."""
    assert normalise(["," * MAX_ITEMS + "10.0.0.1"]) == frozenset()
    assert normalise(["," * (MAX_ITEMS - 1) + "10.0.0.1"]) == {"10.0.0.1"}
    assert normalise([""] * MAX_ITEMS + ["10.0.0.1"]) == frozenset()
    assert normalise([""] * (MAX_ITEMS - 1) + ["10.0.0.1"]) == {"10.0.0.1"}


def test_a_body_that_is_nearly_all_compression() -> None:
    """16 kB that become 16 MiB are refused after the first one; what text compresses to is not."""
    headers = {":path": "/v1/completions", "content-encoding": "gzip"}
    bomb = gzip.compress(b'{"model": "m", "a": "' + b"a" * 8 * MIB + b'"}')
    refused = body_of(bomb, headers.get, Shape.COMPLETION, largest=16 * MIB)
    assert isinstance(refused, BadBody)
    assert refused.status == 413
    small = gzip.compress(b'{"model": "m", "a": "' + b"a" * (MIB - 100) + b'"}')
    read = body_of(small, headers.get, Shape.COMPLETION, largest=16 * MIB)
    assert isinstance(read, Body)
    assert read.model == "m"


def test_a_body_in_crumbs_takes_little_more_than_its_size() -> None:
    """Two bytes a piece would take forty; empty pieces take nothing."""
    buffer = BodyBuffer()
    for _ in range(20_000):
        buffer.add(b"ab")
        buffer.add(b"")
    block = buffer._block
    assert block is not None
    assert sys.getsizeof(block) + len(buffer._first) < 2 * 40_000
    assert buffer.take() == b"ab" * 20_000
    assert buffer.take() == b""


def test_a_large_body_is_not_copied_at_its_end() -> None:
    """Joining 10 MiB takes 7 ms, in which nobody else is served: it comes out as the very block
    that the pieces were copied into, one by one."""
    tracemalloc.start()
    buffer = BodyBuffer()
    for number in range(160):
        buffer.add(bytes((number,)) * 65_536)
    tracemalloc.reset_peak()
    whole = buffer.take()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * MIB
    assert whole == b"".join(bytes((number,)) * 65_536 for number in range(160))


def test_a_body_in_few_pieces_is_not_copied() -> None:
    """The usual one piece comes out as it went in."""
    buffer = BodyBuffer()
    piece = b"x" * 1000
    buffer.add(piece)
    assert buffer.take() is piece
    buffer.add(b"a")
    buffer.add(b"b")
    assert buffer.take() == b"ab"

"""Cutting a message by hand gives what the protobuf library reads."""

import random

import pytest
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest
from hypothesis import given
from hypothesis import strategies as st

from epp_worker.extproc import messages
from epp_worker.extproc.messages import Headers
from epp_worker.extproc.phases import BodyMode, Kind, Modes
from fleet.errors import FormatError
from tests.unit import extproc_messages as make


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (make.request_headers(), Kind.REQUEST_HEADERS),
        (make.request_body(b"x"), Kind.REQUEST_BODY),
        (make.trailers("request"), Kind.REQUEST_TRAILERS),
        (make.response_headers(), Kind.RESPONSE_HEADERS),
        (make.response_body(b"x"), Kind.RESPONSE_BODY),
        (make.trailers("response"), Kind.RESPONSE_TRAILERS),
        (b"", Kind.UNKNOWN),
        (ProcessingRequest(observability_mode=True).SerializeToString(), Kind.UNKNOWN),
        (b"\xea\x3f\x03abc", Kind.UNKNOWN),
    ],
)
def test_kind(data: bytes, kind: Kind) -> None:
    """The kind is the member of the `request` oneof; none set, or one we do not know: unknown."""
    assert messages.read(data).kind is kind


@given(
    body=st.binary(max_size=300),
    end_of_stream=st.booleans(),
    mode=st.sampled_from([None, 0, 2, 4]),
    reverse=st.booleans(),
    observability=st.booleans(),
)
def test_field_order_does_not_matter(
    body: bytes, end_of_stream: bool, mode: int | None, reverse: bool, observability: bool
) -> None:
    """Companions before or after the body, or a body given twice: as the library reads it."""
    part = make.request_body(body, end_of_stream=end_of_stream)
    companions = ProcessingRequest(observability_mode=observability)
    if mode is not None:
        companions.protocol_config.request_body_mode = mode
        companions.protocol_config.SetInParent()
    make.hint(companions, ["10.0.0.1:8000"])
    rest = companions.SerializeToString()
    message = messages.read(rest + part if reverse else part + rest)
    assert message.kind is Kind.REQUEST_BODY
    assert messages.body_part(message) == (body, end_of_stream)
    assert messages.subset_hint(message) == frozenset({"10.0.0.1:8000"})
    modes = messages.modes(message)
    assert modes == (None if mode is None else Modes(BodyMode(mode), BodyMode.NONE))


def test_last_member_of_the_oneof_wins() -> None:
    """A message that holds two phases is of the later one, as protobuf rules."""
    message = messages.read(make.request_body(b"a") + make.response_body(b"b"))
    assert message.kind is Kind.RESPONSE_BODY
    assert messages.body_part(message)[0] == b"b"


@given(st.binary(max_size=60))
def test_damage_is_one_error(data: bytes) -> None:
    """Any bytes are either read or refused with FormatError; nothing else comes out."""
    for raw in (data, b"\x22" + bytes((len(data),)) + data, b"\x12" + bytes((len(data),)) + data):
        try:
            message = messages.read(raw)
            messages.modes(message)
            messages.subset_hint(message)
            messages.served_endpoint(message)
            if message.kind in (Kind.REQUEST_BODY, Kind.RESPONSE_BODY):
                messages.body_part(message)
            elif message.kind in (Kind.REQUEST_HEADERS, Kind.RESPONSE_HEADERS):
                messages.headers_end_stream(message)
                Headers(message).get("x")
        except FormatError:
            pass


@given(st.binary(max_size=40))
def test_body_part_agrees_with_the_library(inner: bytes) -> None:
    """Body and end mark are what the library reads, whatever else the part holds."""
    raw = b"\x22" + bytes((len(inner),)) + inner
    try:
        expected = ProcessingRequest.FromString(raw).request_body
    except Exception:
        return
    body, ends = messages.body_part(messages.read(raw))
    assert body == expected.body
    assert ends == (expected.end_of_stream or expected.end_of_stream_without_message)


def test_raw_value_is_preferred() -> None:
    """raw_value, else value; names in lower case; the last of several (envoy#31555)."""
    request = ProcessingRequest()
    headers = request.request_headers.headers.headers
    headers.add(key="A", raw_value=b"raw", value="text")
    headers.add(key="b", value="text")
    headers.add(key="c", raw_value=b"1")
    headers.add(key="c", raw_value=b"\xff2")
    found = Headers(messages.read(request.SerializeToString()))
    assert [found.get(name) for name in "abcd"] == ["raw", "text", "�2", None]


NAMES = ("a", ":path", "x-ten-long", "content-encoding", "x" * 31, "y" * 130)
VALUES = (
    "",
    "b",
    "%",
    "/v1/x?a=b",
    "text/:path",
    "é",
    "z" * 127,
    "z" * 128,
    "z" * 20_000,
    "0123456789",
)


@pytest.mark.parametrize("seed", range(100))
def test_headers_agree_with_the_library(seed: int) -> None:
    """However they are written: raw or not, repeated, in capitals, long."""
    rng = random.Random(seed)
    request = ProcessingRequest()
    expected: dict[str, str] = {}
    for _ in range(rng.randrange(12)):
        name, value = rng.choice(NAMES), rng.choice((*VALUES, *NAMES))
        written = name.upper() if rng.random() < 0.1 else name
        if rng.random() < 0.9:
            request.request_headers.headers.headers.add(key=written, raw_value=value.encode())
        else:
            request.request_headers.headers.headers.add(key=written, value=value)
        expected[name] = value
    request.request_headers.end_of_stream = rng.random() < 0.5
    found = Headers(messages.read(request.SerializeToString()))
    asked = rng.sample([*NAMES, "absent"], len(NAMES) + 1)
    assert {name: found.get(name) for name in asked} == {n: expected.get(n) for n in asked}


@pytest.mark.parametrize("end_of_stream", [False, True])
def test_end_of_stream_on_headers(end_of_stream: bool) -> None:
    """The end mark of a headers message, with and without headers before it."""
    for headers in ({}, {"a": "b"}):
        data = make.request_headers(headers, end_of_stream=end_of_stream)
        assert messages.headers_end_stream(messages.read(data)) is end_of_stream


@pytest.mark.parametrize(
    ("given_hint", "expected"),
    [
        (["10.0.0.1:8000", "10.0.0.2:8000"], {"10.0.0.1:8000", "10.0.0.2:8000"}),
        ("10.0.0.1:8000, 10.0.0.2", {"10.0.0.1:8000", "10.0.0.2"}),
        (["10.0.0.1:8000,10.0.0.2:8000"], {"10.0.0.1:8000", "10.0.0.2:8000"}),
        ([], set()),
        ("", set()),
        (["nonsense", ""], set()),
    ],
)
def test_subset_hint(given_hint: list[str] | str, expected: set[str]) -> None:
    """A list or a comma-separated text; a hint that is there restricts even when empty."""
    message = messages.read(make.request_headers(subset=given_hint))
    assert messages.subset_hint(message) == frozenset(expected)


def test_no_hint() -> None:
    """Without the key nothing is restricted."""
    assert messages.subset_hint(messages.read(make.request_headers())) is None


def test_client_bytes_are_no_metadata() -> None:
    """A header or a body that spells the keys is no hint: metadata comes from the gateway."""
    text = " ".join(make.SUBSET + make.SERVED)
    message = messages.read(make.request_headers({"x": text}))
    assert messages.subset_hint(message) is None
    message = messages.read(make.request_body(text.encode()))
    assert messages.subset_hint(message) is None


def test_served_endpoint() -> None:
    """The gateway's report of who answered."""
    message = messages.read(make.response_headers(served="10.0.0.9:8000"))
    assert messages.served_endpoint(message) == "10.0.0.9:8000"
    assert messages.served_endpoint(messages.read(make.response_headers())) is None

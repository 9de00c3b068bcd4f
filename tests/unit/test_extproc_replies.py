"""Hand-framed answers are what the protobuf library would read and write."""

import json

import pytest
from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingResponse
from hypothesis import given
from hypothesis import strategies as st

from epp_worker.extproc import replies

OVERWRITE = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def parse(data: bytes) -> ProcessingResponse:
    return ProcessingResponse.FromString(data)


@pytest.mark.parametrize("address", ["10.0.0.1:8000", "[fd00::10]:8000"])
def test_pick_reply(address: str) -> None:
    """Route cache cleared, raw_value only, overwriting, header and metadata the same string."""
    expected = ProcessingResponse()
    common = expected.request_headers.response
    common.clear_route_cache = True
    option = common.header_mutation.set_headers.add(append_action=OVERWRITE)
    option.header.key = "x-gateway-destination-endpoint"
    option.header.raw_value = address.encode()
    metadata = expected.dynamic_metadata.fields["envoy.lb"].struct_value
    metadata.fields["x-gateway-destination-endpoint"].string_value = address
    assert parse(replies.pick_reply(address)) == expected


def test_pick_on_the_body_reply() -> None:
    """The same decision as the answer to a body message: route, header and metadata unchanged."""
    headers = parse(replies.pick_reply("10.0.0.1:8000"))
    body = parse(replies.on_body(replies.pick_reply("10.0.0.1:8000")))
    assert body.WhichOneof("response") == "request_body"
    assert body.request_body.response == headers.request_headers.response
    assert body.dynamic_metadata == headers.dynamic_metadata


@pytest.mark.parametrize(
    ("size", "count"),
    [(0, 1), (1, 1), (127, 1), (128, 1), (61_000, 1), (62_000, 1), (62_001, 2), (63_000, 2),
     (124_000, 2), (125_000, 3)],
)  # fmt: skip
@pytest.mark.parametrize("end_of_stream", [False, True])
@pytest.mark.parametrize("direction", ["request_body", "response_body"])
def test_chunks(size: int, count: int, end_of_stream: bool, direction: str) -> None:
    """At most 62,000 bytes each, in order, nothing lost; the end mark on the last and only there
    (sizes as in the Go EPP's chunking table)."""
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    frame = replies.request_chunks if direction == "request_body" else replies.response_chunks
    parsed = [parse(data) for data in frame(body, end_of_stream=end_of_stream)]
    assert [p.WhichOneof("response") for p in parsed] == [direction] * count
    mutations = [getattr(p, direction).response.body_mutation for p in parsed]
    assert all(m.WhichOneof("mutation") == "streamed_response" for m in mutations)
    pieces = [m.streamed_response for m in mutations]
    assert b"".join(p.body for p in pieces) == body
    assert max(len(p.body) for p in pieces) <= 62_000
    assert [p.end_of_stream for p in pieces] == [False] * (count - 1) + [end_of_stream]


@given(st.binary(max_size=70_000), st.booleans())
def test_chunks_are_canonical(body: bytes, end_of_stream: bool) -> None:
    """A reply framed by hand has the very bytes that the library writes for the same message."""
    for data in replies.response_chunks(body, end_of_stream=end_of_stream):
        assert parse(data).SerializeToString() == data


def test_continue_replies_mirror_the_message() -> None:
    """Each no-op answer is of the kind of the message that it answers."""
    for kind in (
        "request_headers",
        "request_body",
        "request_trailers",
        "response_headers",
        "response_body",
        "response_trailers",
    ):
        parsed = parse(getattr(replies, f"CONTINUE_{kind.upper()}"))
        assert parsed.WhichOneof("response") == kind
        assert not parsed.HasField("dynamic_metadata")


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "", "invalid_request_error"),
        (413, "", "invalid_request_error"),
        (429, "rejected-saturated", "rate_limit_error"),
        (503, "rejected-no-endpoints", "service_unavailable_error"),
    ],
)
def test_immediate_reply(status: int, reason: str, kind: str) -> None:
    """An OpenAI-shaped JSON error, its reason header if there is a reason, raw_value only."""
    immediate = parse(replies.immediate_reply(status, reason, "Why.")).immediate_response
    assert immediate.status.code == status
    assert json.loads(immediate.body) == {
        "error": {"message": "Why.", "type": kind, "code": status}
    }
    headers = {o.header.key: o.header.raw_value for o in immediate.headers.set_headers}
    expected = {"content-type": b"application/json"}
    if reason:
        expected["x-llm-d-request-dropped-reason"] = reason.encode()
    assert headers == expected
    assert all(not o.header.value for o in immediate.headers.set_headers)


@given(st.integers(min_value=0, max_value=2**63))
def test_varint(value: int) -> None:
    """Base 128, lowest group first, the high bit on all bytes but the last."""
    data = replies.varint(value)
    assert sum((byte & 0x7F) << 7 * i for i, byte in enumerate(data)) == value
    assert [byte >= 0x80 for byte in data] == [True] * (len(data) - 1) + [False]

"""Answers of the ext_proc service, as bytes.

Replies without a variable part are built once with the protobuf library. Body replies are framed by
hand around the body's own bytes: that saves building four nested messages per chunk, and the copies
that this takes. Header values are always `raw_value`: newer Envoys read nothing else (envoy#31555).
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

from envoy.config.core.v3.base_pb2 import HeaderValueOption
from envoy.service.ext_proc.v3.external_processor_pb2 import HeaderMutation, ProcessingResponse

DESTINATION_HEADER: Final = "x-gateway-destination-endpoint"
DESTINATION_NAMESPACE: Final = "envoy.lb"
DROPPED_HEADER: Final = "x-llm-d-request-dropped-reason"

CHUNK_BYTES: Final = 62_000
"""Longest body in one reply, as the Go EPP: below Envoy's 64 KiB."""

_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}
_REQUEST_HEADERS_TAG: Final = b"\x0a"
_REQUEST_BODY_TAG: Final = b"\x1a"
_RESPONSE_BODY_TAG: Final = b"\x22"
_END: Final = b"\x10\x01"


def varint(value: int) -> bytes:
    """Protobuf's base-128 form of a number >= 0."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def pick_reply(address: str) -> bytes:
    """RequestHeaders reply that sends the request to `address` (`ip:port`).

    The header and the dynamic metadata are the same string: gateways read one or the other. A
    header of that name sent by the client is overwritten.
    """
    reply = ProcessingResponse()
    common = reply.request_headers.response
    common.clear_route_cache = True
    _set_header(common.header_mutation, DESTINATION_HEADER, address)
    fields = reply.dynamic_metadata.fields[DESTINATION_NAMESPACE].struct_value.fields
    fields[DESTINATION_HEADER].string_value = address
    head = _REQUEST_HEADERS_TAG + _delimited(reply.request_headers.SerializeToString())
    reply.ClearField("request_headers")
    return head + bytes(reply.SerializeToString())


def with_headers(
    headers_reply: bytes, set_headers: Iterable[tuple[str, str]], removed: Sequence[str] = ()
) -> bytes:
    """A pick reply that changes more headers than the destination's; later ones win."""
    reply = ProcessingResponse.FromString(headers_reply)
    mutation = reply.request_headers.response.header_mutation
    for key, value in set_headers:
        _set_header(mutation, key, value)
    mutation.remove_headers.extend(removed)
    # By hand, since `on_body` needs the answer's own part to stand first.
    head = _REQUEST_HEADERS_TAG + _delimited(reply.request_headers.SerializeToString())
    reply.ClearField("request_headers")
    return head + bytes(reply.SerializeToString())


def response_headers(set_headers: Iterable[tuple[str, str]], removed: Sequence[str] = ()) -> bytes:
    """ResponseHeaders reply that changes headers."""
    reply = ProcessingResponse()
    mutation = reply.response_headers.response.header_mutation
    for key, value in set_headers:
        _set_header(mutation, key, value)
    mutation.remove_headers.extend(removed)
    return bytes(reply.SerializeToString())


def with_body(body_reply: bytes, body: bytes) -> bytes:
    """A RequestBody reply that has the gateway send this body instead (body mode BUFFERED)."""
    reply = ProcessingResponse.FromString(body_reply)
    reply.request_body.response.body_mutation.body = body
    return bytes(reply.SerializeToString())


def response_body(body: bytes) -> bytes:
    """ResponseBody reply that has the gateway send this body instead (body mode BUFFERED)."""
    reply = ProcessingResponse()
    reply.response_body.response.body_mutation.body = body
    return bytes(reply.SerializeToString())


def on_body(headers_reply: bytes) -> bytes:
    """A pick reply as the answer to a RequestBody message (body mode BUFFERED).

    HeadersResponse and BodyResponse have the same shape, so only the field's tag differs.
    """
    return _REQUEST_BODY_TAG + headers_reply[1:]


def request_chunks(body: bytes, *, end_of_stream: bool) -> list[bytes]:
    """A request body as `streamed_response` replies; see `_chunks`."""
    return _chunks(_REQUEST_BODY_TAG, body, end_of_stream)


def response_chunks(body: bytes, *, end_of_stream: bool) -> list[bytes]:
    """A response body as `streamed_response` replies; see `_chunks`."""
    return _chunks(_RESPONSE_BODY_TAG, body, end_of_stream)


@lru_cache(maxsize=256)
def immediate_reply(status: int, reason: str, message: str) -> bytes:
    """ImmediateResponse: the gateway answers the client itself with an OpenAI-shaped error.

    Args:
        reason: value of `x-llm-d-request-dropped-reason`; "" for none.
    """
    reply = ProcessingResponse()
    immediate = reply.immediate_response
    immediate.status.code = status  # HTTP codes are the enum's numbers
    _set_header(immediate.headers, "content-type", "application/json")
    if reason:
        _set_header(immediate.headers, DROPPED_HEADER, reason)
    error = {
        "message": message,
        "type": _ERROR_TYPES.get(status, "api_error"),
        "code": status,
    }
    immediate.body = json.dumps({"error": error}).encode()
    return bytes(reply.SerializeToString())


def _continue(kind: str) -> bytes:
    reply = ProcessingResponse()
    part: Any = getattr(reply, kind)
    part.SetInParent()
    if kind.endswith(("headers", "body")):
        part.response.SetInParent()
    return bytes(reply.SerializeToString())


CONTINUE_REQUEST_HEADERS: Final = _continue("request_headers")
CONTINUE_REQUEST_BODY: Final = _continue("request_body")
CONTINUE_REQUEST_TRAILERS: Final = _continue("request_trailers")
CONTINUE_RESPONSE_HEADERS: Final = _continue("response_headers")
CONTINUE_RESPONSE_BODY: Final = _continue("response_body")
CONTINUE_RESPONSE_TRAILERS: Final = _continue("response_trailers")


def _set_header(mutation: HeaderMutation, key: str, value: str) -> None:
    option = mutation.set_headers.add()
    option.header.key = key
    option.header.raw_value = value.encode()
    option.append_action = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


def _delimited(data: bytes) -> bytes:
    return varint(len(data)) + data


@lru_cache(maxsize=1024)
def _head(tag: bytes, length: int, ending: int) -> bytes:
    """What stands before `length` body bytes; `ending` more bytes follow them.

    ProcessingResponse.{request,response}_body(3|4).response(1).body_mutation(3)
    .streamed_response(3){body(1), end_of_stream(2)}
    """
    inner = b"\x0a" + varint(length) if length else b""
    size = len(inner) + length + ending
    for outer in (b"\x1a", b"\x1a", b"\x0a", tag):
        inner = outer + varint(size) + inner
        size = len(inner) + length + ending
    return inner


LAST_REQUEST_CHUNK: Final = _head(_REQUEST_BODY_TAG, 0, len(_END)) + _END
"""The end of a request body, and nothing of it."""

_FULL: Final = {
    (tag, ending): _head(tag, CHUNK_BYTES, ending)
    for tag in (_REQUEST_BODY_TAG, _RESPONSE_BODY_TAG)
    for ending in (0, len(_END))
}


def _chunks(tag: bytes, body: bytes, end_of_stream: bool) -> list[bytes]:
    """`body` unchanged in pieces of at most CHUNK_BYTES, at least one; the last bears the end."""
    total = len(body)
    if total <= CHUNK_BYTES:
        if end_of_stream:
            return [b"".join((_head(tag, total, len(_END)), body, _END))]
        return [_head(tag, total, 0) + body]
    out = []
    view = memoryview(body)
    for start in range(0, total, CHUNK_BYTES):
        piece = view[start : start + CHUNK_BYTES]
        end = _END if end_of_stream and start + CHUNK_BYTES >= total else b""
        size = len(piece)
        head = _FULL[tag, len(end)] if size == CHUNK_BYTES else _head(tag, size, len(end))
        out.append(b"".join((head, piece, end)))
    return out

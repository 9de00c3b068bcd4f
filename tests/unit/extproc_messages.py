"""ProcessingRequests for tests, as a gateway sends them."""

from collections.abc import Mapping, Sequence

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest

NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, DUPLEX, GRPC = range(6)

SUBSET = ("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset")
SERVED = ("envoy.lb", "x-gateway-destination-endpoint-served")


def _headers(
    side: str, headers: Mapping[str, str | bytes], end_of_stream: bool, mode: int | None
) -> ProcessingRequest:
    request = ProcessingRequest()
    part = getattr(request, f"{side}_headers")
    part.SetInParent()
    part.end_of_stream = end_of_stream
    for key, value in headers.items():
        raw = value if isinstance(value, bytes) else value.encode()
        part.headers.headers.add(key=key, raw_value=raw)
    if mode is not None:
        request.protocol_config.request_body_mode = mode
        request.protocol_config.response_body_mode = mode
        request.protocol_config.SetInParent()
    return request


def hint(request: ProcessingRequest, addresses: Sequence[str] | str) -> ProcessingRequest:
    """The same message with a subset hint: a list, or one text."""
    value = request.metadata_context.filter_metadata[SUBSET[0]].fields[SUBSET[1]]
    if isinstance(addresses, str):
        value.string_value = addresses
    else:
        value.list_value.SetInParent()
        for address in addresses:
            value.list_value.values.add(string_value=address)
    return request


def request_headers(
    headers: Mapping[str, str | bytes] | None = None,
    *,
    end_of_stream: bool = False,
    mode: int | None = DUPLEX,
    subset: Sequence[str] | str | None = None,
) -> bytes:
    """RequestHeaders; a POST of a chat completion unless told otherwise."""
    if headers is None:
        headers = {":method": "POST", ":path": "/v1/chat/completions"}
    request = _headers("request", headers, end_of_stream, mode)
    if subset is not None:
        hint(request, subset)
    return bytes(request.SerializeToString())


def response_headers(
    headers: Mapping[str, str | bytes] | None = None,
    *,
    end_of_stream: bool = False,
    served: str | None = None,
    mode: int | None = None,
) -> bytes:
    """ResponseHeaders; a 200 with JSON unless told otherwise."""
    if headers is None:
        headers = {":status": "200", "content-type": "application/json"}
    request = _headers("response", headers, end_of_stream, mode)
    if served is not None:
        fields = request.metadata_context.filter_metadata[SERVED[0]].fields
        fields[SERVED[1]].string_value = served
    return bytes(request.SerializeToString())


def _body(side: str, body: bytes, end_of_stream: bool) -> ProcessingRequest:
    request = ProcessingRequest()
    part = getattr(request, f"{side}_body")
    part.SetInParent()
    part.body = body
    part.end_of_stream = end_of_stream
    return request


def request_body(
    body: bytes, *, end_of_stream: bool = False, subset: Sequence[str] | str | None = None
) -> bytes:
    """RequestBody."""
    request = _body("request", body, end_of_stream)
    if subset is not None:
        hint(request, subset)
    return bytes(request.SerializeToString())


def response_body(body: bytes, *, end_of_stream: bool = False) -> bytes:
    """ResponseBody."""
    return bytes(_body("response", body, end_of_stream).SerializeToString())


def trailers(side: str, values: Mapping[str, str] | None = None) -> bytes:
    """RequestTrailers or ResponseTrailers (`side` is "request" or "response")."""
    request = ProcessingRequest()
    part = getattr(request, f"{side}_trailers")
    part.SetInParent()
    for key, value in (values or {}).items():
        part.trailers.headers.add(key=key, raw_value=value.encode())
    return bytes(request.SerializeToString())

"""Reading ext_proc messages no further than an answer needs.

Envoy writes the fields of a ProcessingRequest in the order of their numbers, so the first byte
tells the kind and a few more tell where its part ends: 1 us where the whole parse takes 5-10. That
is only trusted after every top-level field has been stepped over and nothing but the known
companions follows; anything else is parsed in full by the protobuf library. Header maps and
metadata are parsed when somebody asks for them.
"""

from functools import lru_cache
from itertools import islice
from typing import Any, Final

from envoy.config.core.v3.base_pb2 import HeaderMap, Metadata
from envoy.service.ext_proc.v3.external_processor_pb2 import (
    HttpBody,
    HttpHeaders,
    ProcessingRequest,
    ProtocolConfiguration,
)
from google.protobuf.message import DecodeError

from epp_worker.extproc.phases import BodyMode, Kind, Modes
from epp_worker.scheduling.subset import normalise
from fleet.errors import FormatError

SUBSET_NAMESPACE: Final = "envoy.lb.subset_hint"
SUBSET_KEY: Final = "x-gateway-destination-endpoint-subset"
SERVED_NAMESPACE: Final = "envoy.lb"
SERVED_KEY: Final = "x-gateway-destination-endpoint-served"


class Message:
    """One message, cut but not parsed: the phase's part is `data[start:stop]`, the companions
    (metadata, attributes, protocol_config) are `data[stop:]`.
    """

    __slots__ = ("data", "kind", "start", "stop")

    def __init__(self, kind: Kind, data: bytes, start: int, stop: int) -> None:
        self.kind: Final = kind
        self.data: Final = data
        self.start: Final = start
        self.stop: Final = stop


_KINDS: Final = {kind << 3 | 2: kind for kind in Kind if kind is not Kind.UNKNOWN}
_PARTS: Final = {
    Kind.REQUEST_HEADERS: "request_headers",
    Kind.RESPONSE_HEADERS: "response_headers",
    Kind.REQUEST_BODY: "request_body",
    Kind.RESPONSE_BODY: "response_body",
    Kind.REQUEST_TRAILERS: "request_trailers",
    Kind.RESPONSE_TRAILERS: "response_trailers",
}
_BODIES: Final = (Kind.REQUEST_BODY, Kind.RESPONSE_BODY)

MAX_HEAD_BYTES: Final = 256 * 1024
"""Longest message, not counting a body's bytes. Envoy takes 60 KiB of headers unless told
otherwise, and a subset hint of 4,096 endpoints has 200 kB. A peer that could send more would have
us make millions of objects of it."""

MAX_FIELDS: Final = 16
"""So many top-level fields are stepped over one by one; a gateway sends at most five. Messages with
more are left to the protobuf library."""

MAX_HEADERS: Final = 4096
"""So many headers of a request or response are looked at."""

_METADATA, _ATTRIBUTES, _OBSERVABILITY, _PROTOCOL = 0x42, 0x4A, 0x50, 0x5A


def read(message: bytes) -> Message:
    """Cut a ProcessingRequest into its part and its companions.

    Raises:
        FormatError: not a ProcessingRequest, or longer than any gateway's.
    """
    kind = _KINDS.get(message[0]) if message else None
    size = len(message)
    if size > MAX_HEAD_BYTES:
        _check_size(kind, message)
    if kind is not None:
        try:
            length, start = message[1], 2
            if length >= 0x80:
                length, start = _varint(message, 1)
            stop = start + length
            if stop == size or _only_companions(message, stop):
                return Message(kind, message, start, stop)
        except IndexError:
            pass  # cut short: the protobuf library has the last word
    return _read_in_full(message)


def _check_size(kind: Kind | None, message: bytes) -> None:
    size = len(message)
    if kind in _BODIES:
        try:
            length, start = _varint(message, 1)
        except IndexError as error:
            raise FormatError("not an ext_proc ProcessingRequest") from error
        if start + length <= size:
            size -= length
    if size > MAX_HEAD_BYTES:
        raise FormatError(f"an ext_proc message has {size} bytes beside the body")


def body_part(message: Message) -> tuple[bytes, bool]:
    """The body bytes, and whether they are the body's end.

    Raises:
        FormatError: damaged.
    """
    data, at, stop = message.data, message.start, message.stop
    body = b""
    try:
        if at < stop and data[at] == 0x0A:
            length, at = _varint(data, at + 1)
            body = data[at : at + length]
            at += length
        if at == stop:
            return body, False
        if at + 2 == stop and data[at] == 0x10 and data[at + 1] < 2:
            return body, data[at + 1] == 1
        parsed = HttpBody.FromString(data[message.start : stop])
    except (IndexError, DecodeError) as error:
        raise FormatError("an ext_proc body message cannot be read") from error
    return parsed.body, parsed.end_of_stream or parsed.end_of_stream_without_message


def headers_end_stream(message: Message) -> bool:
    """Whether a headers message says that no body follows.

    Raises:
        FormatError: damaged.
    """
    data, at, stop = message.data, message.start, message.stop
    try:
        for _ in range(MAX_FIELDS):
            if at >= stop or data[at] not in (0x0A, 0x12):
                break
            length, at = _varint(data, at + 1)
            at += length
        if at == stop:
            return False
        if at + 2 == stop and data[at] == 0x18 and data[at + 1] < 2:
            return data[at + 1] == 1
        return bool(HttpHeaders.FromString(data[message.start : stop]).end_of_stream)
    except (IndexError, DecodeError) as error:
        raise FormatError("an ext_proc headers message cannot be read") from error


class Headers:
    """The header map of a headers message.

    A few headers of many are asked for. Those are looked up in the message as it is, as Envoy
    writes it: a key that occurs once, with its raw value behind it. The whole map is parsed when
    one is written otherwise. No value can be taken for a key: keys follow a line feed, which no
    header holds.
    """

    __slots__ = ("_lower", "_message", "_ours", "_values")

    def __init__(self, message: Message | None) -> None:
        self._message = message
        self._lower = b""
        self._ours = False
        self._values: dict[str, str] | None = None

    def get(self, name: str) -> str | None:
        """A header by lower-case name, the last one if there are several; None if absent.

        Bytes that are no UTF-8 become U+FFFD. An unreadable header map has no headers.
        """
        values = self._values
        if values is not None:
            return values.get(name)
        message = self._message
        if message is None:
            return None
        lower = self._lower
        if not lower:
            lower = self._lower = message.data[message.start : message.stop].lower()
            self._ours = any(lower.rfind(each) >= 0 for each in _OURS)
        key = _KEYS.get(name) or _key(name)
        if key.ours and not self._ours:
            return None
        raw = key.raw
        begin = lower.rfind(raw)  # in 2/3 of the time that `find` takes
        if begin < 0:
            return None
        at = begin + len(raw)
        if lower.rfind(raw, 0, begin) < 0 and at < len(lower) and lower[at] == _RAW_VALUE:
            try:
                size, at = _varint(message.data, message.start + at + 1)
            except IndexError:
                return self._parsed().get(name)
            if 0 < size <= message.stop - at:
                return message.data[at : at + size].decode("utf-8", "replace")
        return self._parsed().get(name)

    def _parsed(self) -> dict[str, str]:
        message, self._message, self._lower = self._message, None, b""
        self._values = {}
        if message is not None:
            try:
                parsed = HttpHeaders.FromString(message.data[message.start : message.stop])
            except DecodeError:
                return self._values
            self._values = _texts(parsed.headers)
        return self._values


class _Key:
    """How a header's name is written.

    Attributes:
        ours: it is one of those that only a client that knows us sends: hardly any request has one.
    """

    __slots__ = ("ours", "raw")

    def __init__(self, name: str) -> None:
        raw = name.encode()
        size = len(raw)
        length = bytes((size,)) if size < 0x80 else bytes((size & 0x7F | 0x80, size >> 7))
        self.raw: Final = b"\n" + length + raw
        self.ours: Final = raw.startswith(_OURS)


_OURS: Final = (b"x-llm-d-", b"x-gateway-")
_RAW_VALUE: Final = 0x1A
_KEYS: dict[str, _Key] = {}
"""How keys are written, for those that were asked for; plugins may ask for a few hundred."""

_MAX_KEYS: Final = 1024


def _key(name: str) -> _Key:
    key = _Key(name)
    if len(_KEYS) < _MAX_KEYS:
        _KEYS[name] = key
    return key


def _texts(headers: HeaderMap) -> dict[str, str]:
    return {
        header.key.lower(): header.raw_value.decode("utf-8", "replace") or header.value
        for header in islice(headers.headers, MAX_HEADERS)
    }


def modes(message: Message) -> Modes | None:
    """The body modes that a stream's first message tells; None if it tells none.

    A mode that this version does not know reads as GRPC, which is not served either.

    Raises:
        FormatError: damaged.
    """
    found = _companion(message, _PROTOCOL)
    if found is None:
        return None
    return _modes_of(found) if len(found) <= _USUAL_BYTES else _modes_of.__wrapped__(found)


_USUAL_BYTES: Final = 16
"""A gateway sends two bytes for each direction, the same ones on all its streams."""


@lru_cache(maxsize=256)
def _modes_of(found: bytes) -> Modes:
    try:
        config = ProtocolConfiguration.FromString(found)
    except DecodeError as error:
        raise FormatError("an ext_proc protocol_config cannot be read") from error
    return Modes(_mode(config.request_body_mode), _mode(config.response_body_mode))


def _mode(value: int) -> BodyMode:
    try:
        return BodyMode(value)
    except ValueError:
        return BodyMode.GRPC


def subset_hint(message: Message) -> frozenset[str] | None:
    """The endpoints that the gateway allows, normalised; None if the message has no hint.

    A hint that is there restricts, even if it is empty or holds no address.

    Raises:
        FormatError: damaged metadata, which may have held a hint.
    """
    values = _metadata(message, SUBSET_NAMESPACE)
    if values is None or SUBSET_KEY not in values.fields:
        return None
    value = values.fields[SUBSET_KEY]
    if value.WhichOneof("kind") == "list_value":
        return normalise(item.string_value for item in value.list_value.values)
    return normalise([value.string_value])


def served_endpoint(message: Message) -> str | None:
    """`ip:port` that the gateway says answered; None if it says nothing.

    Raises:
        FormatError: damaged.
    """
    values = _metadata(message, SERVED_NAMESPACE)
    if values is None or SERVED_KEY not in values.fields:
        return None
    return values.fields[SERVED_KEY].string_value or None


def _metadata(message: Message, namespace: str) -> Any:
    data, stop = message.data, message.stop
    if stop == len(data) or data.find(namespace.encode(), stop) < 0:
        return None
    found = _companion(message, _METADATA)
    if found is None:
        return None
    try:
        metadata = Metadata.FromString(found)
    except DecodeError as error:
        raise FormatError("an ext_proc metadata_context cannot be read") from error
    return metadata.filter_metadata.get(namespace)


def _companion(message: Message, wanted: int) -> bytes | None:
    data, at = message.data, message.stop
    found = None
    while at < len(data):
        tag = data[at]
        length, at = _varint(data, at + 1)
        if tag == _OBSERVABILITY:
            continue
        if tag == wanted:  # repeated parts of one message merge, as in protobuf
            found = (found or b"") + data[at : at + length]
        at += length
    return found


def _only_companions(data: bytes, at: int) -> bool:
    size = len(data)
    for _ in range(MAX_FIELDS):
        if at >= size:
            break
        tag = data[at]
        if tag not in (_METADATA, _ATTRIBUTES, _OBSERVABILITY, _PROTOCOL):
            return False
        length, at = _varint(data, at + 1)
        if tag != _OBSERVABILITY:
            at += length
    return at == size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A base-128 number and where it ends. Raises IndexError past the end of `data`."""
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value = byte & 0x7F
    for shift in range(7, 64, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError("a number of more than 64 bits")


def _read_in_full(message: bytes) -> Message:
    try:
        request = ProcessingRequest.FromString(message)
    except DecodeError as error:
        raise FormatError("not an ext_proc ProcessingRequest") from error
    request.DiscardUnknownFields()
    name = request.WhichOneof("request")
    if name is None:
        return Message(Kind.UNKNOWN, b"", 0, 0)
    kind = next(kind for kind, part in _PARTS.items() if part == name)
    part: bytes = getattr(request, name).SerializeToString()
    request.ClearField(name)
    return Message(kind, part + request.SerializeToString(), 0, len(part))

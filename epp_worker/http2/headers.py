"""Request headers: decoded in order, checked once, remembered whole where that is safe.

HPACK makes header blocks depend on all earlier blocks of the connection, through the dynamic
table. We announce a table of size 0, but a peer may use its table until it has acknowledged that
and said so by a size update. Until then every block of the connection is decoded, in order. Then
the table is empty for good, equal blocks mean equal headers, and a block seen before needs no
decoding (40 us with the `hpack` library; an Envoy repeats a handful of blocks all its life).
"""

import logging
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol

import hpack

from epp_worker.http2 import replies
from epp_worker.http2.bounds import Bound
from epp_worker.http2.errors import ConnectionFault, ErrorCode
from epp_worker.http2.statuses import DEADLINE_EXCEEDED, INTERNAL, TOO_LATE, UNIMPLEMENTED

# Its DEBUG records quote header values, which are never logged here, whatever the root's level.
logging.getLogger("hpack").setLevel(logging.INFO)

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]|^[ \t]|[ \t]$")
_GRPC: Final = re.compile(r"application/grpc($|[+;])")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_TIMEOUT: Final = re.compile(r"[0-9]{1,8}[HMSmun]")
_UNREADABLE: Final = -1.0
_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)

_SETTINGS_SENT: Final = 2
"""The opening ones, and those of the table."""

_SIZE_UPDATE: Final = 0x20
"""First three bits of a dynamic table size update (RFC 7541, 6.3)."""


class RequestHead:
    """One request's headers and the verdict on them. Shared between streams: never changed.

    Attributes:
        authority: `:authority`, "" if absent.
        path: `:path`.
        headers: all other fields, last one wins.
        malformed: why the request is no HTTP/2 request, or "".
        refusal: the HTTP answer if it is no gRPC call.
        content_length: what the body must come to; None if the client did not say.
        gzip: whether messages may be compressed.
        timeout: seconds that the client waits, `grpc-timeout`; None for ever.
        unserved: gRPC status and reason, if the call cannot be served as it is.
        plain: holds no pseudo header and nothing forbidden: good as trailers.
    """

    __slots__ = (
        "authority",
        "content_length",
        "gzip",
        "headers",
        "malformed",
        "path",
        "plain",
        "refusal",
        "timeout",
        "unserved",
    )

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        pseudo: dict[bytes, bytes] = {}
        rest: dict[str, str] = {}
        problem = _read(fields, pseudo, rest)
        self.plain = not problem and not pseudo
        self.content_length, unreadable = _content_length(rest)
        self.malformed = problem or _missing(pseudo) or unreadable
        self.authority = pseudo.get(b":authority", b"").decode("latin-1")
        self.path = pseudo.get(b":path", b"").decode("latin-1")
        self.headers: Mapping[str, str] = MappingProxyType(rest)
        self.refusal = _refusal(pseudo.get(b":method", b""), rest)
        encoding = rest.get("grpc-encoding", "identity")
        self.gzip = encoding == "gzip"
        self.timeout = _timeout(rest)
        self.unserved = _unserved(encoding, self.timeout)


def _read(
    fields: Iterable[tuple[bytes, bytes]], pseudo: dict[bytes, bytes], rest: dict[str, str]
) -> str:
    for name, value in fields:
        if name[:1] == b":":
            if rest:
                return "pseudo header after a regular one"
            if name not in _PSEUDO or name in pseudo:
                return "pseudo header unknown or twice"
            pseudo[name] = value
        elif _NAME.fullmatch(name) is None:
            return "header name is not a lower-case token"
        elif name in _HOP_BY_HOP or (name == b"te" and value != b"trailers"):
            return "header that HTTP/2 forbids"
        else:
            rest[name.decode("ascii")] = value.decode("latin-1")
        if _BAD_VALUE.search(value) is not None:
            return "header value with a forbidden character"
    return ""


def _missing(pseudo: Mapping[bytes, bytes]) -> str:
    if not (pseudo.get(b":method") and pseudo.get(b":scheme") and pseudo.get(b":path")):
        return "no :method, :scheme or :path"
    return ""


def _content_length(headers: Mapping[str, str]) -> tuple[int | None, str]:
    """(its value, what is wrong with it)."""
    text = headers.get("content-length")
    if text is None:
        return None, ""
    if _NUMBER.fullmatch(text) is None:
        return None, "content-length is no number"
    return int(text), ""


def _timeout(headers: Mapping[str, str]) -> float | None:
    text = headers.get("grpc-timeout")
    if text is None:
        return None
    if _TIMEOUT.fullmatch(text) is None:
        return _UNREADABLE
    return int(text[:-1]) * _UNITS[text[-1]]


def _unserved(encoding: str, timeout: float | None) -> tuple[int, str] | None:
    if encoding not in replies.ENCODINGS:
        known = ", ".join(replies.ENCODINGS)
        return UNIMPLEMENTED, f"grpc-encoding {encoding[:64]} is none of {known}"
    if timeout is not None and timeout <= 0:
        if timeout == _UNREADABLE:
            return INTERNAL, "grpc-timeout cannot be read"
        return DEADLINE_EXCEEDED, TOO_LATE
    return None


def _refusal(method: bytes, headers: Mapping[str, str]) -> replies.Refusal | None:
    if method != b"POST":
        return replies.NOT_POST_HEAD if method == b"HEAD" else replies.NOT_POST
    if _GRPC.match(headers.get("content-type", "")) is None:
        return replies.NOT_GRPC
    return None


class HeadCache:
    """Decoded heads by their whole block, for the blocks of every stateless connection.

    Two generations: what is asked for stays, what is not goes after at most two fillings.
    """

    __slots__ = ("_old", "_young", "entries", "max_block")

    def __init__(self, entries: int = 1024, max_block: int = 1024) -> None:
        self.entries = entries
        self.max_block = max_block
        self._young: dict[bytes, RequestHead] = {}
        self._old: dict[bytes, RequestHead] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, block: bytes) -> RequestHead | None:
        """The head of this very block, if remembered."""
        head = self._young.get(block)
        if head is None:
            head = self._old.pop(block, None)
            if head is not None:
                self.put(block, head)
        return head

    def put(self, block: bytes, head: RequestHead) -> None:
        """Remember; blocks over `max_block` bytes are not worth it."""
        if len(block) > self.max_block:
            return
        if len(self._young) >= self.entries:
            self._old, self._young = self._young, {}
        self._young[block] = head


class _Table(Protocol):
    maxsize: int


class _Decoder(Protocol):
    max_allowed_table_size: int
    header_table: _Table

    def decode(self, data: bytes, raw: bool) -> Iterable[tuple[bytes, bytes]]: ...


class HeadDecoder:
    """The decoding side of one connection.

    Attributes:
        announced: whether the peer was told that the table is to be of size 0.
    """

    __slots__ = ("_acked", "_acks", "_cache", "_decoder", "_stateless", "announced")

    def __init__(self, cache: HeadCache, max_list_bytes: int) -> None:
        self._cache = cache
        self._decoder: _Decoder = hpack.Decoder(max_header_list_size=max_list_bytes)
        self.announced = False
        self._acks = 0
        self._acked = False
        self._stateless = False

    @property
    def stateless(self) -> bool:
        """Whether blocks of this connection no longer depend on each other."""
        return self._stateless

    def announce(self) -> None:
        """SETTINGS_HEADER_TABLE_SIZE = 0 is sent, as the second SETTINGS of the connection."""
        self.announced = True

    def acknowledged(self) -> None:
        """The peer has acknowledged SETTINGS of ours.

        After those of the table it should begin its next block with a size update to 0. Some peers
        never do (encoders without a table); RFC 9113 would have them cut off, but as long as each
        of their blocks is decoded in order, nothing can go wrong: they only miss the cache.
        """
        self._acks += 1
        if self._acks < _SETTINGS_SENT:
            return
        self._acked = True
        if self._decoder.header_table.maxsize == 0:
            self._settle()

    def decode(self, block: bytes) -> RequestHead:
        """The head in this block. Every block of the connection must come through here, in order.

        Raises:
            ConnectionFault: the block is not HPACK, or its list is too large; the table is then
                in an unknown state.
        """
        if self._stateless:
            head = self._cache.get(block)
            if head is None:
                head = self._decode(block)
                self._cache.put(block, head)
            return head
        if self._acked and block[:1] and block[0] & 0xE0 == _SIZE_UPDATE:
            self._decoder.max_allowed_table_size = 0
        head = self._decode(block)
        if self._acked and self._decoder.header_table.maxsize == 0:
            self._settle()
        return head

    def _settle(self) -> None:
        """The table is of size 0, hence empty, and may never be larger again."""
        self._decoder.max_allowed_table_size = 0
        self._stateless = True

    def _decode(self, block: bytes) -> RequestHead:
        try:
            return RequestHead(self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM,
                "header list over SETTINGS_MAX_HEADER_LIST_SIZE",
                Bound.HEADER_LIST,
            ) from error
        except (hpack.HPACKError, ValueError, IndexError) as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "header block not HPACK") from error

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
from epp_worker.http2.errors import ConnectionFault, ErrorCode

# Its DEBUG records quote header values, which are never logged here, whatever the root's level.
logging.getLogger("hpack").setLevel(logging.INFO)

_NAME: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]|^[ \t]|[ \t]$")
_GRPC: Final = re.compile(r"application/grpc($|[+;])")
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))
_HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)

_SIZE_UPDATE: Final = 0x20
"""First three bits of a dynamic table size update (RFC 7541, 6.3)."""


class RequestHead:
    """One request's headers and the verdict on them. Shared between streams: never changed.

    Attributes:
        authority: `:authority`, "" if absent.
        path: `:path`.
        headers: all other fields, last one wins.
        malformed: why the request is no HTTP/2 request, or "".
        refusal: block of the HTTP answer if it is no gRPC call, or b"".
        plain: holds no pseudo header and nothing forbidden: good as trailers.
    """

    __slots__ = ("authority", "headers", "malformed", "path", "plain", "refusal")

    def __init__(self, fields: Iterable[tuple[bytes, bytes]]) -> None:
        pseudo: dict[bytes, bytes] = {}
        rest: dict[str, str] = {}
        problem = _read(fields, pseudo, rest)
        self.plain = not problem and not pseudo
        self.malformed = problem or _missing(pseudo)
        self.authority = pseudo.get(b":authority", b"").decode("latin-1")
        self.path = pseudo.get(b":path", b"").decode("latin-1")
        self.headers: Mapping[str, str] = MappingProxyType(rest)
        self.refusal = _refusal(pseudo.get(b":method", b""), rest)


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


def _refusal(method: bytes, headers: Mapping[str, str]) -> bytes:
    if method != b"POST":
        return replies.NOT_POST
    if _GRPC.match(headers.get("content-type", "")) is None:
        return replies.NOT_GRPC
    return b""


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
    """The decoding side of one connection."""

    __slots__ = ("_acked", "_cache", "_decoder", "_stateless")

    def __init__(self, cache: HeadCache, max_list_bytes: int) -> None:
        self._cache = cache
        self._decoder: _Decoder = hpack.Decoder(max_header_list_size=max_list_bytes)
        self._acked = False
        self._stateless = False

    @property
    def stateless(self) -> bool:
        """Whether blocks of this connection no longer depend on each other."""
        return self._stateless

    def acknowledged(self) -> None:
        """The peer has acknowledged our SETTINGS_HEADER_TABLE_SIZE = 0.

        It should now begin its next block with a size update to 0. Some peers never do (h2spec,
        encoders without a table); RFC 9113 would have them cut off, but as long as each of their
        blocks is decoded in order, nothing can go wrong: they only miss the cache.
        """
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
                ErrorCode.ENHANCE_YOUR_CALM, "header list over SETTINGS_MAX_HEADER_LIST_SIZE"
            ) from error
        except (hpack.HPACKError, ValueError, IndexError) as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, "header block not HPACK") from error

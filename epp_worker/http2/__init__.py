"""HTTP/2 and gRPC framing of our own on asyncio.Protocol: the worker's front door.

grpcio hides `:authority` and cannot send one connection away; and per-frame work in Python stays
cheap only if one read makes one write, header blocks are constants and decoded ones remembered.
"""

from epp_worker.http2.counters import Counters
from epp_worker.http2.errors import ListenError
from epp_worker.http2.limits import Http2Limits
from epp_worker.http2.server import Http2Server

__all__ = ["Counters", "Http2Limits", "Http2Server", "ListenError"]

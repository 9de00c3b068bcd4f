"""TLS handshakes: begun in fair turns, worked out beside the loop, and none of them for ever.

- `sources`: whose turn it is; no address keeps another one waiting.
- `shaking`: one handshake, step by step; a step runs in a thread.
- `stepper`: that thread.
- `secured`: the transport of a connection whose handshake is done.
- `desk`: all of them together, on the loop.
"""

from epp_worker.http2.handshakes.desk import Handshakes
from epp_worker.http2.handshakes.sources import Crowd

__all__ = ["Crowd", "Handshakes"]

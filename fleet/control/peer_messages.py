"""What workers ask each other on the internal port, beside state and forwarded streams.

A worker that starts while neither a leader nor the store tells it anything asks its peers what they
hold. MessagePack like `fleet.control.messages`, with the same rules for newer formats.
"""

import msgspec

from fleet.control.codec import checked, decode_with
from fleet.control.messages import FORMAT
from fleet.model import EpochVersion, ShareEntry


class AskHolds(msgspec.Struct, frozen=True, tag="ask_holds"):
    """What do you hold? The asker is named for the log."""

    fleet: str
    worker: str
    format: int = FORMAT


class Holds(msgspec.Struct, frozen=True, tag="holds"):
    """What a worker was last told to hold.

    Attributes:
        version: of the last share that it applied; 0.0 if it was told nothing yet.
        entries: that share's groups, with the owner of each.
    """

    fleet: str
    worker: str
    incarnation: str
    version: EpochVersion
    entries: tuple[ShareEntry, ...]
    format: int = FORMAT


_encoder = msgspec.msgpack.Encoder()
_ask = msgspec.msgpack.Decoder(AskHolds)
_holds = msgspec.msgpack.Decoder(Holds)


def encode_peer(message: AskHolds | Holds) -> bytes:
    """The message as it goes over the wire."""
    return _encoder.encode(message)


def decode_ask(data: bytes) -> AskHolds:
    """What a worker asked. Raises FormatError."""
    message: AskHolds = decode_with(_ask, data)
    return checked(message.format, message)


def decode_holds(data: bytes) -> Holds:
    """What a worker answered. Raises FormatError."""
    message: Holds = decode_with(_holds, data)
    return checked(message.format, message)

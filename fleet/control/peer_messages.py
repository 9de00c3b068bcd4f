"""What workers ask each other on the internal port, beside state and forwarded streams.

A worker that starts while neither a leader nor the store tells it anything asks its peers what they
hold. MessagePack like `fleet.control.messages`, with the same rules for newer formats.
"""

import msgspec

from fleet.control.messages import FORMAT, HOLDS_METHOD
from fleet.control.questions import QuestionMethod
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


HOLDS = QuestionMethod(HOLDS_METHOD, AskHolds, Holds)
"""What a worker asks another."""

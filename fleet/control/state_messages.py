"""What workers tell each other of a pool's state, over the `State` method of the internal port.

One call for each pair of follower and owner carries all groups between them:

    follower                                owner
                                     <-     Feed{}       empty: the caller may speak
    StateHello                       ->
    Follow{added, removed}           ->
                                     <-     Feed{starts, rows, complete}    snapshots
                                     <-     Feed{rows}                      then what changed
    Feed                             ->     a draining follower's own part, in the same form

Everything in a Feed is a present value, not a step: what is read twice, or out of order between a
snapshot and what changed meanwhile, does no harm. The rows of a Feed are read after its `starts`
and before its `complete`.

The owner speaks first since gRPC may lose the status of a call that is ended while its caller is
writing: so who is refused, or speaks to a version without this method, learns that.
"""

from collections.abc import Mapping
from typing import NamedTuple, get_args

import msgspec

from fleet.control.codec import checked, either_with
from fleet.control.messages import FORMAT, Unknown
from fleet.errors import FormatError
from fleet.model.identity import GroupKey, PoolId

MAX_GROUPS = 65_536
"""Groups that one call may name."""


class StateHello(msgspec.Struct, frozen=True, tag="state_hello"):
    """First message up: who follows."""

    fleet: str
    worker: str
    incarnation: str
    format: int = FORMAT


class Follow(msgspec.Struct, frozen=True, tag="follow"):
    """Groups to be followed from now on, each with a new snapshot, and no longer."""

    added: tuple[GroupKey, ...] = ()
    removed: tuple[GroupKey, ...] = ()
    format: int = FORMAT


class PoolNumber(NamedTuple):
    """How rows name a pool, for the rest of the call."""

    number: int
    pool: PoolId


class GroupStart(msgspec.Struct, frozen=True):
    """A snapshot begins: what the sender said of the group so far is void."""

    group: GroupKey
    pools: tuple[PoolNumber, ...]


class MetricsRow(msgspec.Struct, frozen=True, array_like=True):
    """An endpoint's metrics as last scraped.

    Attributes:
        age_ms: since they were asked for; None = never read.
        seen: requests in flight at that moment.
        failures: failed scrapes since.
    """

    waiting: float | None
    running: float | None
    kv: float | None
    age_ms: int | None
    seen: int
    failures: int = 0
    refused: bool = False


class PoolRows(msgspec.Struct, frozen=True, array_like=True):
    """Present values of one pool.

    Attributes:
        counts: requests in flight by incarnation of the worker that picked, then by endpoint.
        metrics: by endpoint.
        slots: by name of the slot; only the slot reads its pieces.
    """

    pool: int
    counts: Mapping[str, Mapping[str, int]] = msgspec.field(default_factory=dict)
    metrics: Mapping[str, MetricsRow] = msgspec.field(default_factory=dict)
    slots: tuple[tuple[str, bytes], ...] = ()


class Feed(msgspec.Struct, frozen=True, tag="feed"):
    """A part of what is known.

    Attributes:
        rows: each an encoded `PoolRows`, made once for all that follow.
        complete: groups whose snapshot ends with this message.
        absent: groups that the sender does not hold (any more).
    """

    starts: tuple[GroupStart, ...] = ()
    rows: tuple[msgspec.Raw, ...] = ()
    complete: tuple[GroupKey, ...] = ()
    absent: tuple[GroupKey, ...] = ()
    format: int = FORMAT


StateMessage = StateHello | Follow | Feed

_encoder = msgspec.msgpack.Encoder()
_messages: msgspec.msgpack.Decoder[StateMessage] = msgspec.msgpack.Decoder(StateMessage)
_rows = msgspec.msgpack.Decoder(PoolRows)
_KNOWN = frozenset(str(kind.__struct_config__.tag) for kind in get_args(StateMessage))


def encode_state(message: StateMessage) -> bytes:
    """The message as it goes over the wire."""
    return _encoder.encode(message)


def encode_rows(rows: PoolRows) -> msgspec.Raw:
    """Rows as a Feed takes them."""
    return msgspec.Raw(_encoder.encode(rows))


def decode_state(data: bytes) -> StateMessage | Unknown:
    """What a peer sent: a message, or one of a kind that a later version has added.

    Raises:
        FormatError: damaged, or of a format that is too new.
    """
    message: StateMessage | Unknown = either_with(_messages, data, _KNOWN)
    return checked(message.format, message)


def decode_rows(raw: msgspec.Raw) -> PoolRows:
    """Rows of a Feed. Raises FormatError."""
    try:
        return _rows.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise FormatError(f"unreadable rows of the state stream: {error}") from error

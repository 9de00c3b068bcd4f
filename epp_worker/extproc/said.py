"""What JSON documents say, each field as it stands there: what bodies and answers are decoded into.

One reading of a request's body serves the model and the hints.
"""

from typing import Any

import msgspec

_ABSENT = msgspec.Raw(b"")


class Turn(msgspec.Struct):
    """What hints read of a turn; what else is in it is skipped, and no dict is made."""

    role: Any = None
    reasoning_content: Any = None
    content: Any = None
    tool_calls: Any = None
    arguments: Any = None
    output: Any = None


class Said(msgspec.Struct, frozen=True):
    """Everything that any shape says of itself but its messages; what is no hint is passed over.

    Attributes:
        model: None = none. All else is JSON as it came, b"" = absent.
    """

    model: str | None = None
    prompt: msgspec.Raw = _ABSENT
    tools: msgspec.Raw = _ABSENT
    instructions: msgspec.Raw = _ABSENT
    system: msgspec.Raw = _ABSENT
    input: msgspec.Raw = _ABSENT
    items: msgspec.Raw = _ABSENT
    token_ids: msgspec.Raw = _ABSENT
    cache_salt: msgspec.Raw = _ABSENT
    stream: msgspec.Raw = _ABSENT
    max_tokens: msgspec.Raw = _ABSENT
    max_completion_tokens: msgspec.Raw = _ABSENT
    max_output_tokens: msgspec.Raw = _ABSENT
    sampling_params: msgspec.Raw = _ABSENT


class SaidRaw(Said, frozen=True):
    """With `messages` as they came."""

    messages: msgspec.Raw = _ABSENT


class SaidInTurns(Said, frozen=True):
    """With `messages` as turns, None = absent or null."""

    messages: list[Turn] | None = None


NOTHING_SAID = SaidRaw()

read = msgspec.json.Decoder(SaidRaw).decode
"""Raises: what `msgspec.json.decode` does, ValueErrors and RecursionError among it."""

_read_in_turns = msgspec.json.Decoder(SaidInTurns).decode

TURNS_BYTES = 128 * 1024
"""A longer body is not taken apart before it is known how much of it is wanted."""


def read_at_once(body: bytes) -> Said:
    """As `read`, but messages of an ordinary length are decoded at once if they are turns: that
    takes no longer than looking for their end, which is all that `read` does.

    Raises:
        ValueError, RecursionError: as `read`.
    """
    if len(body) <= TURNS_BYTES:
        try:
            return _read_in_turns(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass  # they are no turns, or it is no JSON
    return read(body)


class UsageHolder(msgspec.Struct):
    """What `UsageDocument` has in `message` or `response`."""

    usage: Any = None


class UsageDocument(msgspec.Struct):
    """Where usage is found: OpenAI at the top, Anthropic in `message`, Responses in `response`."""

    usage: Any = None
    message: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    response: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

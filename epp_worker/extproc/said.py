"""What JSON documents say, each field as it stands there: what bodies and answers are decoded into.

One reading of a request's body serves the model and the hints. Nothing here has code of its own.
"""

from typing import Any

import msgspec

_ABSENT = msgspec.Raw(b"")


class Said(msgspec.Struct, frozen=True):
    """Everything that any shape says of itself; what is no hint is passed over.

    Attributes:
        model: None = none. All else is JSON as it came, b"" = absent.
    """

    model: str | None = None
    prompt: msgspec.Raw = _ABSENT
    messages: msgspec.Raw = _ABSENT
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


NOTHING_SAID = Said()

read = msgspec.json.Decoder(Said).decode
"""Raises: what `msgspec.json.decode` does, ValueErrors and RecursionError among it."""


class Turn(msgspec.Struct):
    """What hints read of a turn; what else is in it is skipped, and no dict is made."""

    role: Any = None
    reasoning_content: Any = None
    content: Any = None
    tool_calls: Any = None
    arguments: Any = None
    output: Any = None


class UsageHolder(msgspec.Struct):
    """What `UsageDocument` has in `message` or `response`."""

    usage: Any = None


class UsageDocument(msgspec.Struct):
    """Where usage is found: OpenAI at the top, Anthropic in `message`, Responses in `response`."""

    usage: Any = None
    message: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    response: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

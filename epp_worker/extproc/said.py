"""What a body says, each field as it stands there: one reading serves the model and the hints."""

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

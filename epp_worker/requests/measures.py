"""What is measured of a request, and in which buckets.

The names are the llm-d router's. The buckets are fewer than its own: a worker has a thousand pools,
and each bucket is a line of the page for each of them.
"""

from typing import Final, NamedTuple

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
_FIRST_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
_TOKEN_SECONDS = (0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0)
_BYTES = (1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 16_777_216)
_TOKENS = (1, 16, 128, 1024, 4096, 16_384, 65_536, 1_048_576)
PICK_SECONDS = (0.0001, 0.0002, 0.0005, 0.001, 0.005, 0.02)
"""Of one choice of an endpoint."""


# What there is a histogram of, for each row of requests: an index into `MEANINGS`. Plain numbers:
# with members of an enumeration a request takes half as long again.
DURATION: Final = 0
REQUEST_BYTES: Final = 1
RESPONSE_BYTES: Final = 2
INPUT_TOKENS: Final = 3
OUTPUT_TOKENS: Final = 4
CACHED_TOKENS: Final = 5
FIRST_STREAMED: Final = 6
FIRST_WHOLE: Final = 7
PER_OUTPUT_TOKEN: Final = 8
STREAMED_PER_OUTPUT_TOKEN: Final = 9


class Meaning(NamedTuple):
    """How a measure is shown.

    Attributes:
        name: without the prefix.
        old: the twin's whole name; "" = it has none.
        label: a further label as it stands on the page; "" = none.
    """

    name: str
    bounds: tuple[float, ...]
    text: str
    old: str = ""
    label: str = ""


MEANINGS: tuple[Meaning, ...] = (
    Meaning(
        "request_duration_seconds",
        _SECONDS,
        "From the request's headers to the response's end.",
        "inference_objective_request_duration_seconds",
    ),
    Meaning(
        "request_size_bytes", _BYTES, "Bodies of requests.", "inference_objective_request_sizes"
    ),
    Meaning(
        "response_size_bytes", _BYTES, "Bodies of responses.", "inference_objective_response_sizes"
    ),
    Meaning(
        "request_input_tokens",
        _TOKENS,
        "Tokens read, as the model server tells.",
        "inference_objective_input_tokens",
    ),
    Meaning(
        "request_output_tokens",
        _TOKENS,
        "Tokens written, as the model server tells.",
        "inference_objective_output_tokens",
    ),
    Meaning("request_cached_tokens", _TOKENS, "Tokens read that were cached there."),
    Meaning(
        "request_ttft_seconds",
        _FIRST_SECONDS,
        "Until the response's body begins.",
        label='streaming="true"',
    ),
    Meaning(
        "request_ttft_seconds",
        _FIRST_SECONDS,
        "Until the response's body begins.",
        label='streaming="false"',
    ),
    Meaning("request_ntpot_seconds", _TOKEN_SECONDS, "Duration by output tokens."),
    Meaning(
        "request_streaming_tpot_seconds",
        _TOKEN_SECONDS,
        "Time per output token after the first, of streamed responses.",
    ),
)

PREFIX: Final = "llm_d_epp_"

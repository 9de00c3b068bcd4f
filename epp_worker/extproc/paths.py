"""Which kind of request a path is: the longest matching ending decides.

Whatever matches none is passed through: its body may be anything, and no model is asked of it.
"""

from collections.abc import Callable
from enum import IntEnum, auto
from functools import lru_cache
from typing import Final

_PATH_HEADERS: Final = (":path", "x-original-path", "x-forwarded-path")
"""Where gateways say the path, the first one that there is."""

DEFAULT_PATH: Final = "/v1/completions"
"""What a body without any path is taken for."""


class Shape(IntEnum):
    """What a body is made like. Whole numbers, whose hash is quick."""

    COMPLETION = auto()
    CHAT = auto()
    EMBEDDING = auto()
    RESPONSE = auto()
    CONVERSATION = auto()
    IMAGE = auto()
    MESSAGES = auto()
    """Anthropic's."""
    GENERATE = auto()
    """vLLM's, with token ids."""
    OTHER = auto()


_ENDINGS: Final = {
    "completions": Shape.COMPLETION,
    "completions/render": Shape.COMPLETION,
    "chat/completions": Shape.CHAT,
    "chat/completions/render": Shape.CHAT,
    "embeddings": Shape.EMBEDDING,
    "responses": Shape.RESPONSE,
    "conversations": Shape.CONVERSATION,
    "images/generations": Shape.IMAGE,
    "messages": Shape.MESSAGES,
    "messages/count_tokens": Shape.MESSAGES,
    "inference/v1/generate": Shape.GENERATE,
}
_LONGEST_FIRST: Final = tuple(sorted(_ENDINGS, key=len, reverse=True))

_LOOKED_AT: Final = 128
"""Characters at a path's end that may be remembered; clients make paths up, of any length."""

_NAMING = frozenset((Shape.COMPLETION, Shape.CHAT, Shape.EMBEDDING, Shape.RESPONSE, Shape.MESSAGES))


def names_model(shape: Shape) -> bool:
    """Whether the body of such a request must name a model: of the others' it is optional."""
    return shape in _NAMING


def path_of(header: Callable[[str], str | None]) -> str:
    """The request's path without its query; "" if the gateway does not say."""
    for name in _PATH_HEADERS:
        value = header(name)
        if value:
            return value.partition("?")[0]
    return ""


def shape_of(path: str) -> Shape:
    """The shape that a path promises."""
    return _shape_of(path[-_LOOKED_AT:])


@lru_cache(maxsize=1024)
def _shape_of(path: str) -> Shape:
    path = path.rstrip("/")
    for ending in _LONGEST_FIRST:
        if path.endswith(ending):
            return _ENDINGS[ending]
    return Shape.OTHER

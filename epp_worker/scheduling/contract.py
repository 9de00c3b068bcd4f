"""The words that the ext_proc session and the scheduler share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from fleet.model.identity import PoolRef
from fleet.model.rewrites import NO_INTENTS, Intents


class ResponsePhase(StrEnum):
    """Whether a stream stays open while the answer to its request passes."""

    TRACK = "track"
    """It does: usage, latency and the end of the request are seen; who dies cuts the answer."""

    DETACH = "detach"
    """It ends with the pick where the gateway allows it; requests in flight are estimated."""

    DRAIN = "drain"
    """As `DETACH` while the worker leaves, else as `TRACK`."""


class Hints(Protocol):
    """What else a request's body says, read when somebody asks for it.

    It can be asked only while the request is being picked for: the body is let go afterwards, and
    then nothing is known any more. What the body does not say, or says in a shape that is not
    understood, is simply missing here.
    """

    @property
    def prompt(self) -> bytes:
        """The text that the model reads, in the order in which it reads it: tools, then roles and
        contents. Equal beginnings of prompts are equal beginnings here. b"" = unknown."""
        ...

    def beginning(self, size: int) -> bytes:
        """At least so many bytes of the prompt, or all if it is no longer: whoever needs no more
        asks for no more, as prompts may have megabytes."""
        ...

    @property
    def token_ids(self) -> Sequence[int] | None:
        """The prompt as tokens, where the client sent tokens."""
        ...

    @property
    def cache_salt(self) -> str:
        """What keeps this client's cached prompts apart from those of others; "" = nothing."""
        ...

    @property
    def stream(self) -> bool:
        """Whether the client asked for a streamed answer."""
        ...

    @property
    def max_tokens(self) -> int | None:
        """The longest answer the client wants, in tokens."""
        ...


class _NoHints:
    prompt = b""
    token_ids: Sequence[int] | None = None
    cache_salt = ""
    stream = False
    max_tokens: int | None = None

    def beginning(self, size: int) -> bytes:
        """See `Hints.beginning`."""
        return b""


NO_HINTS: Hints = _NoHints()


class PickRequest(msgspec.Struct, frozen=True):
    """What is known of a request when an endpoint is picked.

    Attributes:
        model: the request's `model`; None for a request without a body.
        subset: normalised `ip:port` or bare `ip` texts of the subset hint; None = no hint.
        header: looks a request header up by lower-case name; like `hints`, only during the pick.
        priority: of the request's objective; 0 = none. Negative ones are shed first.
        hints: what else the body says; `NO_HINTS` for a request without a body.
        path: of the request, without its query; "" if the gateway does not say.
        request_id: of `x-request-id`, or the one that was made for it.
        objective: name of the InferenceObjective that the request names; "" = none.
        target_model: what the model server is asked for, if that is not `model`.
    """

    model: str | None
    subset: frozenset[str] | None
    header: Callable[[str], str | None]
    priority: int = 0
    hints: Hints = NO_HINTS
    path: str = ""
    request_id: str = ""
    objective: str = ""
    target_model: str | None = None


class Pick(Protocol):
    """A chosen endpoint; its in-flight count is already raised."""

    @property
    def address(self) -> str:
        """`ip:port` as it goes on the wire."""
        ...

    @property
    def pool(self) -> PoolRef:
        """The pool whose endpoint it is."""
        ...

    @property
    def headers_reply(self) -> bytes:
        """Prebuilt ProcessingResponse(request_headers) that names this endpoint."""
        ...

    @property
    def response_phase(self) -> ResponsePhase | None:
        """What the pool asks for; None = what the fleet does."""
        ...

    def served_by(self, address: str) -> None:
        """The gateway reports who answered: the count moves there if that is another one."""
        ...

    def responded(self, header: Callable[[str], str | None]) -> Sequence[tuple[str, str]]:
        """Response headers came, after `served_by` if that is known; headers to set on them.

        Args:
            header: looks a response header up by lower-case name; only during the call.
        """
        ...

    def detach(self) -> None:
        """The stream ends and the request goes on: from now on its count is an estimate."""
        ...

    def release(self) -> None:
        """Lower the in-flight count; idempotent, and nothing after `detach`."""
        ...


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no endpoint: an HTTP status with an OpenAI-shaped error and a reason header.

    Attributes:
        status: 400, 413, 429 or 503.
        reason: value of `x-llm-d-request-dropped-reason`, or "" for none (400, 413).
        message: for the client; never quotes the body.
    """

    status: int
    reason: str
    message: str


class Picker(Protocol):
    """One route group as a session sees it."""

    def pick(self, request: PickRequest) -> Pick | Refusal:
        """Choose, and count in flight, in one step."""
        ...

    def intents(self, model: str | None) -> Intents:
        """What is said of requests to the pool that would serve this one; `NO_INTENTS` if that is
        none, or cannot be told."""
        return NO_INTENTS

    def pool_of(self, model: str | None) -> PoolRef | None:
        """The pool that would serve a request for this model; None if that cannot be told."""
        ...

    def names(self, model: str) -> bool:
        """Whether a pool's owner wrote this model down: then it is no client's invention."""
        ...

    @property
    def needs_model(self) -> bool:
        """Whether a request without `model` cannot be routed (several pools share the group)."""
        ...

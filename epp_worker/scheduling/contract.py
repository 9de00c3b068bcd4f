"""The words that the ext_proc session and the scheduler share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fleet.model.identity import PoolRef


@dataclass(frozen=True, slots=True)
class PickRequest:
    """What is known of a request when an endpoint is picked.

    Attributes:
        model: the request's `model`; None for a request without a body.
        subset: normalised `ip:port` or bare `ip` texts of the subset hint; None = no hint.
        header: looks a request header up by lower-case name.
        priority: of the request's objective; 0 = none. Negative ones are shed first.
        prompt_tokens: how long the prompt is, estimated or counted; 0 = unknown.
    """

    model: str | None
    subset: frozenset[str] | None
    header: Callable[[str], str | None]
    priority: int = 0
    prompt_tokens: int = 0


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

    def served_by(self, address: str) -> None:
        """The gateway reports who answered: the count moves there if that is another one."""
        ...

    def release(self) -> None:
        """Lower the in-flight count; idempotent."""
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

    @property
    def needs_model(self) -> bool:
        """Whether a request without `model` cannot be routed (several pools share the group)."""
        ...

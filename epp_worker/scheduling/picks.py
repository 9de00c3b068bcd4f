"""A pick while its request is open: counts in flight, and what plugins are told of its end."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

from epp_worker.extproc.replies import pick_reply, with_headers
from epp_worker.scheduling.contract import PickRequest, ResponsePhase
from epp_worker.scheduling.endpoint import EndpointState
from epp_worker.scheduling.load import prompt_tokens
from epp_worker.scheduling.plugin import Selection
from epp_worker.scheduling.scheduler import Scheduler
from fleet.model.pools import Pool


class _Home(Protocol):
    """What a pick needs of its pool."""

    pool: Pool
    mismatches: int
    response_phase: ResponsePhase | None

    def find(self, address: str) -> EndpointState | None:
        """The endpoint at an address."""
        ...

    def now(self) -> float:
        """Monotonic seconds."""
        ...


@lru_cache(maxsize=1024)
def _reply(
    destination: str, headers: tuple[tuple[str, str], ...], removed: tuple[str, ...]
) -> bytes:
    reply = pick_reply(destination)
    return with_headers(reply, headers, removed) if headers or removed else reply


class OpenPick:
    """See `epp_worker.scheduling.contract.Pick`.

    Tokens of the prompt, and endpoints that help (prefill, encode), are counted until the response
    begins: then they are done.
    """

    __slots__ = (
        "_helpers",
        "_home",
        "_open",
        "_request",
        "_scheduler",
        "_tokens",
        "_told",
        "address",
        "headers_reply",
        "pool",
        "state",
    )

    def __init__(
        self, home: _Home, scheduler: Scheduler, selection: Selection, request: PickRequest
    ) -> None:
        state = selection.endpoints[0]
        self._home = home
        self._scheduler = scheduler
        self._request = request if scheduler.follows_responses else None
        self._open = True
        self._told: str | None = None
        self._tokens = prompt_tokens(request) if scheduler.counts_tokens else 0
        self._helpers: tuple[EndpointState, ...] = ()
        self.pool = home.pool.ref
        self.state = state
        if len(selection.endpoints) == 1 and _is_plain(selection):
            self.address = state.address
            self.headers_reply = state.headers_reply
        else:
            fallbacks = ",".join(each.address for each in selection.endpoints)
            self.address = selection.destination or fallbacks
            self.headers_reply = _reply(
                self.address, tuple(selection.headers.items()), selection.removed
            )
        if selection.others:
            self._helpers = tuple(each for chosen in selection.others.values() for each in chosen)
            for helper in self._helpers:
                _count(helper, 1)
        state.tokens += self._tokens
        state.picked_for(request.target_model or request.model or "")
        _count(state, 1)

    def served_by(self, address: str) -> None:
        self._told = address
        if address == self.address or not self._open:
            return
        served = self._home.find(address)
        if served is self.state:
            return
        self._home.mismatches += 1
        if served is not None:
            self.state.tokens -= self._tokens
            _count(self.state, -1)
            served.tokens += self._tokens
            _count(served, 1)
            self.state = served

    @property
    def response_phase(self) -> ResponsePhase | None:
        return self._home.response_phase

    def responded(self, header: Callable[[str], str | None]) -> Sequence[tuple[str, str]]:
        self._prefilled()
        if self._request is None or not self._open:
            return ()
        return self._scheduler.responded(self._request, self.state, header, self._told)

    def detach(self) -> None:
        if self._open:
            self._open = False
            self.state.detach(self._home.now())
            self._end()

    def release(self) -> None:
        if self._open:
            self._open = False
            _count(self.state, -1)
            self._end()

    def _end(self) -> None:
        self._prefilled()
        if self._request is not None:
            self._scheduler.finished(self._request, self.state)

    def _prefilled(self) -> None:
        """The answer begins, or there is none: the prompt is computed, and helpers are done."""
        self.state.tokens -= self._tokens
        self._tokens = 0
        helpers, self._helpers = self._helpers, ()
        for helper in helpers:
            _count(helper, -1)


def _is_plain(selection: Selection) -> bool:
    return not (selection.destination or selection.headers or selection.removed)


def _count(state: EndpointState, change: int) -> None:
    state.inflight += change
    if state.touched is not None:
        state.touched(state)

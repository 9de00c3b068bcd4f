"""Who may read what, by the API server's word: TokenReview, then SubjectAccessReview.

Neither logs nor keeps a token: answers are kept under a keyed hash of it.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeVar

from fleet.clock import Clock
from fleet.errors import KubeError, KubeRefused
from fleet.kube.contract import KubeApi
from fleet.kube.read_answers import Answers, Pace
from fleet.kube.reviews import (
    ACCESS_REVIEWS,
    TOKEN_REVIEWS,
    User,
    access_review,
    allowed_in,
    token_review,
    user_of,
)

log = logging.getLogger(__name__)

REVIEW_SECONDS: Final = 3.0
"""Each of the two calls: both fit into the 10 s that Prometheus gives a scrape."""

AWAY_GAP_SECONDS: Final = 5.0
"""After a call that failed nobody asks for this long."""

_UNFIT: Final = frozenset({400, 413, 422})
"""The API server cannot make sense of this one token or path; it is not away."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Allowed:
    """He may read it."""

    user: str


@dataclass(frozen=True, slots=True)
class Stranger:
    """The token is nobody's."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """He may not."""

    user: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can tell at the moment; ask again in so many seconds."""

    retry_seconds: float


Decision = Allowed | Stranger | Forbidden | Unknown


class Decides(Protocol):
    """Decides about reads."""

    async def decide(self, token: str, path: str) -> Decision:
        """May the bearer of this token GET this path?"""
        ...


class ReadAccess:
    """Decides by one API server. Requests that need the same answer share one call."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._users: Answers[User | Stranger] = Answers()
        self._rights: Answers[Allowed | Forbidden] = Answers()
        self._pace = Pace()
        self._away_until = {True: float("-inf"), False: float("-inf")}
        self._asking: dict[bytes, asyncio.Task[Any]] = {}

    async def decide(self, token: str, path: str) -> Decision:
        """See `Decides.decide`."""

        async def who() -> tuple[User | Stranger, bool]:
            user = await self._user(token)
            return (user, True) if user is not None else (Stranger(), False)

        digest = self._digest(token)
        user = await self._answer(self._users, digest, who)
        if not isinstance(user, User):
            return self._unknown() if user is None else user

        async def whether() -> tuple[Allowed | Forbidden, bool]:
            allowed = await self._allowed(user, path)
            return (Allowed(user.name), True) if allowed else (Forbidden(user.name), False)

        right = await self._answer(self._rights, self._digest(f"{token} {path}"), whether)
        return self._unknown() if right is None else right

    async def close(self) -> None:
        """End the calls that are open."""
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _digest(self, text: str) -> bytes:
        return blake2b(text.encode(), key=self._key, digest_size=32).digest()

    def _unknown(self) -> Unknown:
        left = self._away_until[False] - self._clock.monotonic()
        return Unknown(max(1.0, left))

    async def _user(self, token: str) -> User | None:
        try:
            answer = await self._api.create(
                TOKEN_REVIEWS, token_review(token), timeout_seconds=REVIEW_SECONDS
            )
        except KubeRefused as error:
            if error.status in _UNFIT:
                return None
            raise
        return user_of(answer)

    async def _allowed(self, user: User, path: str) -> bool:
        try:
            answer = await self._api.create(
                ACCESS_REVIEWS, access_review(user, path), timeout_seconds=REVIEW_SECONDS
            )
        except KubeRefused as error:
            if error.status in _UNFIT:
                return False
            raise
        return allowed_in(answer)

    async def _answer(
        self, answers: Answers[V], key: bytes, review: Callable[[], Awaitable[tuple[V, bool]]]
    ) -> V | None:
        """What is known, or what the API server says now; None if it cannot be asked."""
        now = self._clock.monotonic()
        fresh = answers.fresh(key, now)
        if fresh is not None:
            return fresh
        task = self._asking.get(key)
        if task is None:
            old = answers.old(key, now)
            known = old is not None
            # A reader who was accepted before waits for nobody: others may be guessing tokens.
            if now < self._away_until[known] or not (known or self._pace.take(now)):
                return old
            asking = self._ask(answers, key, review, known=known)
            task = asyncio.create_task(asking, name="review of a reader")
            self._asking[key] = task
            task.add_done_callback(lambda _: self._asking.pop(key, None))
        # A client that goes must not take the answer from the others.
        await asyncio.shield(task)
        now = self._clock.monotonic()
        return answers.fresh(key, now) or answers.old(key, now)

    async def _ask(
        self,
        answers: Answers[V],
        key: bytes,
        review: Callable[[], Awaitable[tuple[V, bool]]],
        *,
        known: bool,
    ) -> None:
        try:
            value, positive = await review()
        except KubeError as error:
            self._failed(error, known=known)
            return
        answers.put(key, value, self._clock.monotonic(), positive=positive)

    def _failed(self, error: KubeError, *, known: bool) -> None:
        """Nobody else asks for a while; those accepted before only stop if one of them failed: some
        tokens may take the API server too long (a webhook), and anybody can make up such."""
        now = self._clock.monotonic()
        if now >= self._away_until[False]:
            # Of the server's own words only a rule that is missing: others might quote a token.
            problem = str(error) if getattr(error, "status", 0) == 403 else type(error).__name__
            log.warning("reads cannot be authorized", extra={"problem": problem})
        self._away_until[False] = now + AWAY_GAP_SECONDS
        if known:
            self._away_until[True] = now + AWAY_GAP_SECONDS

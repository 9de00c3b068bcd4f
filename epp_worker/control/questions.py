"""Answers one question on the internal port: of whom it may be, how many at once, how often."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import grpc
import grpc.aio

from fleet.certificates import Certificates, Role
from fleet.control.questions import A, Q, QuestionMethod
from fleet.control.transport import stranger
from fleet.errors import FormatError
from fleet.telemetry import RateLimited

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class QuestionBounds:
    """What askers may take of a worker.

    Attributes:
        seconds: for the question to come, and likewise for the answer to be taken.
        at_once: questions; who is turned away asks again.
        a_second: answered, as many at a time after a rest; None = as many as come.
    """

    seconds: float
    at_once: int
    a_second: float | None = None


class QuestionService(Generic[Q, A]):
    """Serves one method; see `PeerService`."""

    def __init__(
        self,
        method: QuestionMethod[Q, A],
        answer: Callable[[Q], A],
        bounds: QuestionBounds,
        *,
        fleet: str,
        of: Role,
        limited: RateLimited,
        certificates: Certificates | None,
    ) -> None:
        """Args:
        answer: what this worker says to a question of its own fleet.
        of: who may ask.
        """
        self.method = method.path
        self._messages = method
        self._known = answer
        self._bounds = bounds
        self._fleet = fleet
        self._of = of
        self._limited = limited
        self._certificates = certificates
        self._asking = 0
        self._left = bounds.a_second or 0.0
        self._refilled = 0.0

    def handler(self) -> "grpc.RpcMethodHandler[Any, Any]":
        """See `PeerService.handler`."""
        return grpc.stream_stream_rpc_method_handler(self.answer)

    async def answer(self, _: Any, context: Context) -> None:
        """One question, one answer."""
        why = stranger(context, self._certificates, self._of)
        if why is not None:
            extra = {"peer": context.peer(), "why": why}
            self._limited.warning("call refused on the internal port", key=why, extra=extra)
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        if self._asking >= self._bounds.at_once or not self._in_pace():
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many ask this worker")
        self._asking += 1
        try:
            await self._answer(context)
        finally:
            self._asking -= 1

    def _in_pace(self) -> bool:
        pace = self._bounds.a_second
        if pace is None:
            return True
        now = asyncio.get_running_loop().time()
        self._left = min(pace, self._left + (now - self._refilled) * pace)
        self._refilled = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    async def _answer(self, context: Context) -> None:
        try:
            async with asyncio.timeout(self._bounds.seconds):
                data = await context.read()
            question = self._messages.question(data if isinstance(data, bytes) else b"")
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no question came")
            raise
        except FormatError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:200])
            raise
        if question.fleet != self._fleet:
            reason = f"this worker is of fleet {self._fleet!r}"
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, reason)
        answer = self._messages.encode(self._known(question))
        try:
            async with asyncio.timeout(self._bounds.seconds):
                await context.write(answer)
        except TimeoutError:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not taken")

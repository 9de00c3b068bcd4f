"""One question, one answer on a worker's internal port, and what askers may take of it."""

import asyncio
import logging
from typing import Any

import grpc
import pytest

from epp_worker.control.questions import QuestionBounds, QuestionService
from fleet.certificates import Role
from fleet.clock import SystemClock
from fleet.control.peer_messages import HOLDS, AskHolds, Holds
from fleet.model import EpochVersion
from fleet.telemetry import RateLimited

pytestmark = pytest.mark.looptime

SECONDS = 5.0
ASK = HOLDS.encode(AskHolds("blue", "w1"))
KNOWN = Holds("blue", "w0", "life", EpochVersion(3, 7), ())


class Aborted(Exception):
    """The call is over."""


class Call:
    """What gRPC hands to a method."""

    def __init__(self, *, asks: bool = True, takes: bool = True, data: bytes = ASK) -> None:
        self._asks, self._takes, self._data = asks, takes, data
        self.end: tuple[grpc.StatusCode, str] | None = None
        self.written: list[bytes] = []

    async def read(self) -> bytes:
        if not self._asks:
            await asyncio.Event().wait()
        return self._data

    async def write(self, data: bytes) -> None:
        if not self._takes:
            await asyncio.Event().wait()
        self.written.append(data)

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        self.end = (code, details)
        raise Aborted


def service(bounds: QuestionBounds) -> QuestionService[AskHolds, Holds]:
    return QuestionService(
        HOLDS,
        lambda _: KNOWN,
        bounds,
        fleet="blue",
        of=Role.WORKER,
        limited=RateLimited(logging.getLogger(__name__), SystemClock()),
        certificates=None,
    )


async def said(to: QuestionService[AskHolds, Holds], call: Call) -> str:
    """What the caller gets: `answered`, or the status and its details."""
    untyped: Any = call
    try:
        await to.answer(None, untyped)
    except Aborted:
        assert call.end is not None
        return f"{call.end[0].name}: {call.end[1]}"
    assert [HOLDS.answer(data) for data in call.written] == [KNOWN]
    return "answered"


async def test_a_question_is_answered_once() -> None:
    """And what is no question of this fleet is refused, by what is wrong with it."""
    served = service(QuestionBounds(SECONDS, 2))
    assert await said(served, Call()) == "answered"
    assert (await said(served, Call(data=b"\xc1"))).startswith("INVALID_ARGUMENT: unreadable")
    other = Call(data=HOLDS.encode(AskHolds("red", "w1")))
    assert await said(served, other) == "PERMISSION_DENIED: this worker is of fleet 'blue'"


async def test_who_says_nothing_or_takes_nothing_is_not_waited_for() -> None:
    """Each of the two has the seconds that there are."""
    served = service(QuestionBounds(SECONDS, 2))
    loop = asyncio.get_running_loop()
    for call, why in (
        (Call(asks=False), "no question came"),
        (Call(takes=False), "the answer was not taken"),
    ):
        began = loop.time()
        assert await said(served, call) == f"DEADLINE_EXCEEDED: {why}"
        assert loop.time() - began == pytest.approx(SECONDS)


async def test_so_many_ask_at_once_and_no_more() -> None:
    """Those count that have said nothing yet; one that ends makes room."""
    served = service(QuestionBounds(SECONDS, 2))
    silent = [asyncio.create_task(said(served, Call(asks=False))) for _ in range(2)]
    await asyncio.sleep(0)
    assert await said(served, Call()) == "RESOURCE_EXHAUSTED: too many ask this worker"
    await asyncio.gather(*silent)
    assert await said(served, Call()) == "answered"


async def test_so_many_are_answered_a_second_and_no_more() -> None:
    """20 after a rest; half a second later another 10."""
    served = service(QuestionBounds(SECONDS, 2, a_second=20.0))
    for expected in (20, 10):
        got = [await said(served, Call()) for _ in range(30)]
        assert got == ["answered"] * expected + ["RESOURCE_EXHAUSTED: too many ask this worker"] * (
            30 - expected
        )
        await asyncio.sleep(0.5)

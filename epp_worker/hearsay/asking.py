"""Asks peers what they hold, as long as nobody else tells this worker what to hold."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from epp_worker.hearsay.rules import Adoption, Asker, Heard, adopt
from epp_worker.hearsay.seeds import Seeds
from epp_worker.peers import Peers
from fleet.control.peer_messages import HOLDS, AskHolds
from fleet.errors import FormatError

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 1.0
"""A leader or the store most often speaks within this time of a start."""
ANSWER_SECONDS = 1.0
MAX_PAUSE_SECONDS = 15.0
AT_ONCE = 32


class Hearsay:
    """Asks after a moment of silence, and again until a leader or the store has spoken.

    Args:
        asker: the worker as it is now.
        told: whether a leader or the store has said what this worker is to hold.
        led: whether a leader is connected: it will say so.
        heard: takes what follows from the answers.
    """

    def __init__(
        self,
        seeds: Seeds,
        peers: Peers,
        *,
        asker: Callable[[], Asker],
        told: Callable[[], bool],
        led: Callable[[], bool],
        heard: Callable[[Adoption], None],
    ) -> None:
        self._seeds = seeds
        self._peers = peers
        self._asker = asker
        self._told = told
        self._led = led
        self._heard = heard

    async def run(self) -> None:
        """Until somebody else has spoken."""
        pause = PATIENCE_SECONDS
        while True:
            await asyncio.sleep(pause)
            if self._told():
                return
            if not self._led():
                await self.once()
            pause = min(pause * 2, MAX_PAUSE_SECONDS)

    async def once(self) -> None:
        """Ask everybody once."""
        addresses = await self._seeds.find()
        if not addresses:
            return
        asker = self._asker()
        question = HOLDS.encode(AskHolds(asker.fleet, asker.worker))
        slots = asyncio.Semaphore(AT_ONCE)
        answers = await asyncio.gather(
            *(self._ask(address, question, slots) for address in addresses)
        )
        if not self._told() and not self._led():
            self._adopt([answer for answer in answers if answer is not None])

    def _adopt(self, answers: Sequence[Heard]) -> None:
        adoption = adopt(self._asker(), answers)
        share = adoption.share
        log.info(
            "no leader and no share in the store: peers were asked",
            extra={
                "answers": len(answers),
                "map": "none" if share is None else str(share.version),
                "groups": 0 if share is None else len(share.entries),
            },
        )
        self._heard(adoption)

    async def _ask(self, address: str, question: bytes, slots: asyncio.Semaphore) -> Heard | None:
        async with slots:
            channel: Any = self._peers.dial(address)
            try:
                data = await channel.unary_unary(HOLDS.path)(
                    question, metadata=self._peers.metadata, timeout=ANSWER_SECONDS
                )
                return Heard(address, HOLDS.answer(data))
            except grpc.aio.AioRpcError as error:
                extra = {"peer": address, "code": error.code().name}
                log.debug("peer not heard", extra=extra)
            except FormatError as error:
                log.warning("peer not understood", extra={"peer": address, "error": str(error)})
            finally:
                await channel.close(None)
        return None

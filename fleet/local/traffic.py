"""Steady traffic through the gateway: an open loop, bounded, every answer looked at.

A request is good only if the answer is whole and comes from a pod of the pool that was asked. An
answer that began well and did not end well is cut; everything else that is not good has failed.
"""

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

import aiohttp

from fleet.clock import Clock
from fleet.local.demo_events import Outcome, Record
from fleet.local.model_server import SERVED_BY

REQUEST_SECONDS = 20.0
MOST_OPEN = 256
STREAM_RATIO = 0.3
PROMPT = "Which worker picked the pod that answers this? " * 4


@dataclass(frozen=True, slots=True)
class Target:
    """A pool to ask.

    Attributes:
        url: of chat completions, through the gateway.
        pods: prefix of its pods' names, `namespace/pool-`.
    """

    url: str
    model: str
    pods: str


class _Bad(Exception):
    """The answer is no good one."""


class Traffic:
    """Asks all targets in turn at a fixed rate until stopped.

    Attributes:
        records: every finished request.
        skipped: requests that were not sent because too many were open.
    """

    def __init__(
        self,
        http: aiohttp.ClientSession,
        targets: Sequence[Target],
        clock: Clock,
        chance: random.Random,
    ) -> None:
        self._http, self._targets, self._clock, self._chance = http, targets, clock, chance
        self._open: set[asyncio.Task[None]] = set()
        self._stopping = False
        self.records: list[Record] = []
        self.skipped = 0

    def counts(self) -> tuple[int, int, int]:
        """Requests, failed and cut so far."""
        failed = sum(record.outcome is Outcome.FAILED for record in self.records)
        cut = sum(record.outcome is Outcome.CUT for record in self.records)
        return len(self.records), failed, cut

    async def run(self, per_second: float) -> None:
        """Send until `stop` was called, then wait for the open requests."""
        began, sent = self._clock.monotonic(), 0
        try:
            while not self._stopping:
                due = int((self._clock.monotonic() - began) * per_second)
                while sent < due:
                    self._send(self._targets[sent % len(self._targets)])
                    sent += 1
                await self._clock.sleep(0.5 / per_second)
            if self._open:
                await asyncio.wait(self._open, timeout=REQUEST_SECONDS)
        finally:
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)

    def stop(self) -> None:
        """Send no more."""
        self._stopping = True

    def _send(self, target: Target) -> None:
        if len(self._open) >= MOST_OPEN:
            self.skipped += 1
            return
        task = asyncio.create_task(self._ask(target, self._chance.random() < STREAM_RATIO))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _ask(self, target: Target, stream: bool) -> None:
        began = self._clock.monotonic()
        begun: list[bool] = []
        outcome, why = Outcome.GOOD, ""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                await self._exchange(target, stream, begun)
        except aiohttp.ClientPayloadError:
            outcome, why = Outcome.CUT, "the answer ends too early"
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, _Bad) as error:
            outcome = Outcome.CUT if begun else Outcome.FAILED
            why = f"{type(error).__name__} {error}".removeprefix("_Bad ")[:120]
        self.records.append(Record(began, self._clock.monotonic(), outcome, why))

    async def _exchange(self, target: Target, stream: bool, begun: list[bool]) -> None:
        body = {
            "model": target.model,
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 12 if stream else 8,
            "stream": stream,
        }
        async with self._http.post(target.url, json=body) as answer:
            if answer.status != 200:
                raise _Bad(f"status {answer.status}")
            pod = answer.headers.get(SERVED_BY, "")
            if not pod.startswith(target.pods):
                raise _Bad(f"answered by {pod or 'nobody'}, not by a pod of {target.pods}*")
            begun.append(True)
            raw = await answer.read()
        if stream:
            if not raw.endswith(b"data: [DONE]\n\n"):
                raise _Bad("the stream ends without [DONE]")
        elif not json.loads(raw).get("choices"):
            raise _Bad("no choices in the answer")

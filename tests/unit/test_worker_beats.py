"""Beats and the repair of a share, with a store that comes and goes."""

import asyncio
import logging
import random

import pytest

from epp_worker.beats import Beats, ShareRepair
from epp_worker.holds import Ruling
from fleet.clock import SystemClock
from fleet.errors import StoreUnavailable
from fleet.model import Addresses, Member, Share
from fleet.store.contract import Store
from fleet.telemetry import RateLimited
from tests.worker_fakes import share_with

pytestmark = pytest.mark.looptime
MEMBER = Member("w", "i1", Addresses("h:1", "h:2", "h:3", "h:4"))


class Shelf:
    """The two calls of a store that a worker makes."""

    def __init__(self) -> None:
        self.up = True
        self.beats: list[float] = []
        self.stored: Share | None = None

    async def beat(self, member: Member) -> None:
        if not self.up:
            raise StoreUnavailable("no answer")
        self.beats.append(asyncio.get_running_loop().time())

    async def share(self, worker: str) -> Share | None:
        if not self.up:
            raise StoreUnavailable("no answer")
        return self.stored


def limited() -> RateLimited:
    return RateLimited(logging.getLogger("epp_worker.beats"), SystemClock(), seconds=5.0)


def beats_of(shelf: Shelf) -> Beats:
    store: Store = shelf  # type: ignore[assignment]
    return Beats(
        store, lambda: MEMBER, heartbeat_seconds=0.5, rng=random.Random(1), limited=limited()
    )


async def test_beats_come_every_heartbeat_give_or_take_a_tenth() -> None:
    """0.45 to 0.55 s apart, and not all alike."""
    shelf = Shelf()
    task = asyncio.create_task(beats_of(shelf).run())
    await asyncio.sleep(20.0)
    task.cancel()
    gaps = [b - a for a, b in zip(shelf.beats, shelf.beats[1:], strict=False)]
    assert len(gaps) > 30
    assert all(0.449 <= gap <= 0.551 for gap in gaps)
    assert max(gaps) - min(gaps) > 0.05


async def test_a_change_beats_at_once() -> None:
    """A drain mark does not wait for the next heartbeat."""
    shelf = Shelf()
    beats = beats_of(shelf)
    task = asyncio.create_task(beats.run())
    await asyncio.sleep(0.1)
    beats.now()
    await asyncio.sleep(0.01)
    task.cancel()
    assert len(shelf.beats) == 2


async def test_a_store_that_is_away_is_said_now_and_then_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No traceback, one line for many failures, and beats go on when it is back."""
    shelf = Shelf()
    shelf.up = False
    task = asyncio.create_task(beats_of(shelf).run())
    await asyncio.sleep(3.0)
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    shelf.up = True
    await asyncio.sleep(1.0)
    task.cancel()
    assert shelf.beats


async def test_a_missing_share_is_no_information() -> None:
    """Nothing is applied, nothing is dropped."""
    shelf = Shelf()
    applied: list[Share] = []

    def apply(share: Share) -> Ruling:
        applied.append(share)
        return Ruling.APPLY

    store: Store = shelf  # type: ignore[assignment]
    repair = ShareRepair(store, "w", apply, poll_seconds=1.0, limited=limited())
    task = asyncio.create_task(repair.run())
    await asyncio.sleep(1.5)
    assert applied == []
    shelf.up = False
    await asyncio.sleep(1.0)
    shelf.up, shelf.stored = True, share_with(3)
    await asyncio.sleep(1.0)
    task.cancel()
    assert applied == [share_with(3)]

"""Questions to `GET /api/v1/plan` one after the other leave the leader's loop its time."""

import threading
import time

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from coordinator.web import reads, start_web
from coordinator.web.reads import PLAN_REST
from coordinator.whatif import NoSuchWorker, Premises
from fleet.settings.model import PlacementSettings
from tests.fake_view import FakeView, empty_map


async def test_after_a_plan_none_is_made_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as long as the last one took: a plan of 10 ms is followed by none for 30."""
    began: list[float] = []
    ended: list[float] = []

    def slow(*_: object) -> None:
        began.append(time.monotonic())
        threading.Event().wait(0.01)
        ended.append(time.monotonic())
        raise NoSuchWorker("no live worker")

    view = FakeView(map=empty_map(9))
    plan = Premises(empty_map(9), (), {}, None, PlacementSettings())
    monkeypatch.setattr(view, "premises", lambda: plan, raising=False)
    monkeypatch.setattr(reads, "what_if", slow)
    web = await start_web(view, host="127.0.0.1", port=0, token="t", registry=CollectorRegistry())
    try:
        async with aiohttp.ClientSession() as http:
            for _ in range(2):
                url = f"http://127.0.0.1:{web.port}/api/v1/plan?remove=w"
                async with http.get(url) as answer:
                    assert answer.status == 404
    finally:
        await web.close()
    assert len(began) == 2
    assert began[1] - ended[0] >= PLAN_REST * 0.01

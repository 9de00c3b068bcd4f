"""When a stream really ends with the pick: what the transport allows decides."""

import asyncio

import pytest

from epp_worker.extproc.detaching import ResponsePhases
from epp_worker.process import ENVOY_HEADER, LAST_BYTES, ONE_WRITE_BYTES, ServedStream
from epp_worker.scheduling.contract import ResponsePhase
from epp_worker.wheel import Wheel
from tests.extproc_world import World, streamed
from tests.unit import extproc_messages as make
from tests.worker_fakes import FakeStream

GATEWAY = {ENVOY_HEADER: "true"}


class Scene:
    """One served stream of a worker that detaches."""

    def __init__(self, headers: dict[str, str], *, full: bool = False) -> None:
        self.world = World()
        session = self.world.session()
        session._phases = ResponsePhases(ResponsePhase.DETACH)
        self.stream = FakeStream("a")
        self.stream.headers = headers
        self.stream.full = full
        lane = Wheel(asyncio.get_running_loop()).lane(0.1)
        self.served = ServedStream(self.stream, session, lane)

    def ask(self, size: int) -> bytes:
        """A request with so large a prompt; its body."""
        body = b'{"model":"m","prompt":"%s"}' % (b"x" * size)
        self.served.received(make.request_headers())
        self.served.received(make.request_body(body, end_of_stream=True))
        return body


@pytest.mark.parametrize("size", [0, 9_000, 200_000])
async def test_it_ends_in_one_go(size: int) -> None:
    """Everything, the end of the body and that of the stream, before anything else happens."""
    scene = Scene(GATEWAY)
    body = scene.ask(size)
    assert scene.stream.ended == (0, "")
    sent, ends = streamed(scene.stream.sent)
    assert sent == body
    assert ends == [False] * (len(ends) - 1) + [True]
    assert streamed(scene.stream.sent[-1:]) == (b"", [True])
    assert scene.world.inflight() == 1
    scene.served.half_closed()
    scene.served.aborted()
    assert scene.world.counts.ends == []


@pytest.mark.parametrize(
    ("headers", "full", "size"),
    [
        ({}, False, 0),
        ({"x-forwarded-for": "10.0.0.1"}, False, 0),
        (GATEWAY, True, 0),
        (GATEWAY, False, ONE_WRITE_BYTES - LAST_BYTES),
    ],
    ids=["no Envoy", "still none", "windows are used up", "too much for one write"],
)
async def test_it_stays(headers: dict[str, str], full: bool, size: int) -> None:
    """And the request's body has its end all the same."""
    scene = Scene(headers, full=full)
    body = scene.ask(size)
    assert scene.stream.ended is None
    sent, ends = streamed(scene.stream.sent)
    assert sent == body
    assert ends[-1]
    assert not any(ends[:-1])
    scene.served.received(make.response_headers(end_of_stream=True))
    assert scene.world.counts.ends == [True]
    assert scene.world.inflight() == 0


async def test_a_refusal_needs_no_end_of_its_own() -> None:
    """It ends the stream as ever."""
    scene = Scene(GATEWAY)
    scene.served.received(make.request_headers())
    scene.served.received(make.request_body(b"no JSON", end_of_stream=True))
    assert scene.stream.ended == (0, "")
    assert scene.world.inflight() == 0

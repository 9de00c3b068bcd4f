"""The stream of events, asked through loopback."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest

from coordinator.web import events as events_module
from coordinator.web import feed as feed_module
from fleet.model import MemberState, Phase
from tests.web_scene import OTHER, Scene, placed, pool_name, scene_of, served

DEADLINE = 20.0


@dataclass
class Stream:
    """One open stream, read as a client would."""

    response: aiohttp.ClientResponse

    async def next(self) -> tuple[str, dict[str, Any], str]:
        """The next event: its name, document and id."""
        name, ident = "", ""
        async with asyncio.timeout(DEADLINE):
            while True:
                line = (await self.response.content.readline()).decode()
                assert line, "the stream has ended"
                field, _, value = line.rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "id":
                    ident = value
                elif field == "data":
                    return name, json.loads(value), ident

    async def until(self, name: str) -> tuple[dict[str, Any], str]:
        """The next event of this name."""
        async with asyncio.timeout(DEADLINE):
            while True:
                found, document, ident = await self.next()
                if found == name:
                    return document, ident

    async def end(self) -> None:
        """Read until the server ends it."""
        async with asyncio.timeout(DEADLINE):
            await self.response.read()


@asynccontextmanager
async def listening(port: int, known: str = "") -> AsyncIterator[Stream]:
    headers = {"Last-Event-ID": known} if known else {}
    url = f"http://127.0.0.1:{port}/api/v1/events"
    async with aiohttp.ClientSession() as client, client.get(url, headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Stream(response)


@pytest.fixture
async def scene() -> AsyncIterator[tuple[Scene, int]]:
    """Four pools on two workers, and the port."""
    made = scene_of(4, 2)
    async with served(made) as web:
        yield made, web.port


def renamed(scene: Scene, number: int, **fields: Any) -> Any:
    ref = pool_name(number)
    found = scene.placement(ref)
    assert found is not None
    return replace(found, **fields)


async def test_who_comes_is_told_how_things_are(scene: tuple[Scene, int]) -> None:
    """A beat, then to read the map, who leads, and all workers."""
    async with listening(scene[1]) as stream:
        assert stream.response.headers["Content-Type"] == "text/event-stream"
        assert stream.response.headers["Cache-Control"] == "no-store"
        assert stream.response.headers["X-Content-Type-Options"] == "nosniff"
        name, beat, _ = await stream.next()
        assert (name, beat["now"][-1]) == ("beat", "Z")
        assert (await stream.next())[:2] == ("reset", {"format": 1, "epoch": 3, "version": 17})
        name, standing, _ = await stream.next()
        assert name == "standing"
        assert standing == {
            "format": 1,
            "fleet": "default",
            "leader": {"id": "coordinator-0", "http": "127.0.0.1:8080"},
            "leading": True,
            "not_ready": None,
            "answered_by": "coordinator-0",
        }
        name, workers, _ = await stream.next()
        assert (name, workers["whole"]) == ("workers", True)
        assert [each["id"] for each in workers["workers"]] == ["worker-0", "worker-1"]


async def test_changes_come_as_they_happen(scene: tuple[Scene, int]) -> None:
    """Of the map one pool, of the workers one; who leads."""
    view, port = scene
    async with listening(port, known="3.17") as stream:
        assert [(await stream.next())[0] for _ in range(3)] == ["beat", "standing", "workers"]
        view.publish(renamed(view, 1, phase=Phase.MOVING, moving_to="worker-0"))
        changes, ident = await stream.until("map")
        assert ident == "3.18"
        assert [(each["name"], each["phase"]) for each in changes["changed"]] == [
            ("mistral-7b-1", "moving")
        ]
        view.workers[1] = replace(view.workers[1], state=MemberState.DRAINING)
        view.count()
        workers, _ = await stream.until("workers")
        assert not workers["whole"]
        states = {each["id"]: each["state"] for each in workers["workers"]}
        assert states["worker-1"] == "draining"
        view.who = OTHER
        view.count()
        standing, _ = await stream.until("standing")
        assert (standing["leader"]["id"], standing["leading"]) == ("coordinator-1", False)


async def test_who_comes_again_misses_nothing(scene: tuple[Scene, int]) -> None:
    """From the version that it has; from one that is not known any more it reads the whole map."""
    view, port = scene
    async with listening(port) as stream:
        await stream.until("workers")
        for owner in ("worker-0", "worker-1", "worker-0"):
            view.publish(renamed(view, 1, owners=(owner,)))
            await stream.until("map")
        async with listening(port, known="3.18") as again:
            names = [(await again.next())[0] for _ in range(3)]
            assert names == ["beat", "standing", "workers"]
            assert [(await again.until("map"))[1] for _ in range(2)] == ["3.19", "3.20"]
        for unknown in ("3.16", "2.99", "nonsense", "3.18" * 100):
            async with listening(port, known=unknown) as other:
                assert [(await other.next())[0] for _ in range(2)] == ["beat", "reset"]


async def test_what_happened_while_nobody_listened_is_told(scene: tuple[Scene, int]) -> None:
    """The log goes on from what was told last."""
    view, port = scene
    async with listening(port) as stream:
        await stream.until("workers")
    view.publish(renamed(view, 2, owners=("worker-1",)))
    async with listening(port, known="3.17") as again:
        changes, ident = await again.until("map")
        assert (ident, changes["from_version"], len(changes["changed"])) == ("3.18", 17, 1)


async def test_a_silent_fleet_beats(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a client knows that it still hears."""
    monkeypatch.setattr(events_module, "BEAT_SECONDS", 0.02)
    async with listening(scene[1], known="3.17") as stream:
        await stream.until("workers")
        for _ in range(3):
            await stream.until("beat")


async def test_streams_are_bounded(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes when there are too many is told to poll, and comes in once one has gone."""
    monkeypatch.setattr(events_module, "MAX_LISTENERS", 1)
    monkeypatch.setattr(events_module, "BEAT_SECONDS", 0.02)
    url = f"http://127.0.0.1:{scene[1]}/api/v1/events"
    async with aiohttp.ClientSession() as client:
        async with listening(scene[1]) as stream:
            await stream.until("workers")
            async with client.get(url) as refused:
                assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
                assert (await refused.json())["error"]["code"] == "too_many_listeners"

        async def admitted() -> bool:
            async with client.get(url) as response:
                return response.status == 200

        async with asyncio.timeout(DEADLINE):
            while not await admitted():
                await asyncio.sleep(0.01)


async def test_a_stream_ends_in_time(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its reader may still read is looked at when it comes again."""
    monkeypatch.setattr(events_module, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(events_module, "STREAM_SECONDS", 0.1)
    async with listening(scene[1]) as stream:
        await stream.end()


async def test_a_reader_that_stops_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is sent goes nowhere; it holds neither memory nor a place for long."""
    monkeypatch.setattr(events_module, "MAX_LISTENERS", 1)
    monkeypatch.setattr(events_module, "WRITE_SECONDS", 0.3)
    scene = scene_of(1500, 2)
    placements = list(scene.placements.values())
    async with served(scene) as web, aiohttp.ClientSession() as client:

        async def another() -> int:
            async with client.get(f"http://127.0.0.1:{web.port}/api/v1/events") as response:
                return response.status

        reader, writer = await asyncio.open_connection("127.0.0.1", web.port, limit=1024)
        writer.write(b"GET /api/v1/events HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"200" in await reader.readline()
        assert await another() == 503
        async with asyncio.timeout(DEADLINE):
            # About 0.5 MB each time: more than all buffers on the way hold, soon.
            for flip in itertools.count():
                owner = (f"worker-{flip % 2}",)
                scene.publish(*(replace(each, owners=owner) for each in placements))
                if await another() == 200:
                    break
        writer.close()


async def test_what_a_slow_reader_has_not_taken_stays_in_the_log(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who comes again for all of a full log, and does not read, holds one event of it."""
    monkeypatch.setattr(events_module, "WRITE_SECONDS", 0.05)
    view, _ = scene
    events, given = events_module.Events(view), list[bytes]()

    class Stuck:
        async def write(self, data: bytes) -> None:
            given.append(data)
            if b"event: map" in data:
                await asyncio.Event().wait()

    async with events._feed.listen():
        begun = str(events._feed._map.version) if events._feed._map is not None else ""
        for number in range(20):
            view.publish(renamed(view, 1, owners=(f"worker-{number % 2}",)))
            await events._feed.look()
        with pytest.raises(TimeoutError):
            await events._tell(Stuck(), begun)  # type: ignore[arg-type]
    assert b"".join(given).count(b"event: map") == 1


async def test_one_who_is_too_slow_reads_the_whole_map(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is bounded; whose place is no more in it is told so."""
    monkeypatch.setattr(feed_module, "MAX_EVENTS", 2)
    view, _ = scene
    feed = feed_module.Feed(view)
    async with feed.listen():
        _, place = feed.begin("")
        for owner in ("worker-0", "worker-1", "worker-0"):
            view.publish(renamed(view, 1, owners=(owner,)))
            await feed.look()
        told, _ = feed.after(place)
        assert [each.split(b"\n")[0] for each in told] == [b"event: reset", b"event: workers"]
        _, place = feed.begin("")
        assert feed.after(place)[0] == []


async def test_the_log_is_bounded_in_bytes(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The latest event stays, however large."""
    monkeypatch.setattr(feed_module, "MAX_LOG_BYTES", 10)
    view, _ = scene
    feed = feed_module.Feed(view)
    async with feed.listen():
        for owner in ("worker-0", "worker-1"):
            view.publish(renamed(view, 1, owners=(owner,)))
            await feed.look()
        assert len(feed._log) == 1


async def test_nothing_is_gathered_while_nobody_listens(
    scene: tuple[Scene, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one who goes ends it."""
    monkeypatch.setattr(events_module, "BEAT_SECONDS", 0.02)

    def gathering() -> bool:
        return "news for the page" in {task.get_name() for task in asyncio.all_tasks()}

    async with listening(scene[1]) as stream:
        await stream.until("workers")
        assert gathering()
    async with asyncio.timeout(DEADLINE):
        while gathering():
            await asyncio.sleep(0.01)


async def test_closing_ends_the_streams() -> None:
    """At once, in good order: clients come again elsewhere."""
    async with served(scene_of(2, 2)) as web, listening(web.port) as stream:
        await stream.until("workers")
        closing = asyncio.create_task(web.close())
        await stream.end()
        await closing


async def test_the_first_map_is_told(scene: tuple[Scene, int]) -> None:
    """Who listened before there was one is told to read it."""
    early = Scene()
    async with served(early) as web, listening(web.port) as stream:
        assert (await stream.until("reset"))[0]["epoch"] == 0
        early.publish(placed(pool_name(1), "worker-0"))
        document, _ = await stream.until("reset")
        assert (document["epoch"], document["version"]) == (3, 17)

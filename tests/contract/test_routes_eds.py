"""What EDS files promise beside the contract of all routes: locks, renames, names."""

import asyncio
import fcntl
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator.election.contract import Term
from coordinator.routes.eds import EdsRoutes
from coordinator.routes.eds_file import EdsFile
from coordinator.routes.envoy_format import file_name, group_of
from fleet.errors import RouteError
from fleet.model import GroupKey
from fleet.settings.model import RouteSettings
from tests.contract.route_places import ONE, TWO, A, B, C, EdsPlace, RoutesClock, route, term


@pytest.fixture
def eds(tmp_path: Path) -> EdsPlace:
    return EdsPlace(tmp_path / "eds")


def test_an_eds_file_is_what_envoy_reads(eds: EdsPlace) -> None:
    """A DiscoveryResponse with one ClusterLoadAssignment, named by the group."""
    asyncio.run(eds.publisher().write([route(A, TWO, 3, 17)], term(eds, 3)))
    kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
    assert json.loads(eds.path(A).read_text()) == {
        "version_info": "3.17",
        "type_url": kind,
        "resources": [
            {
                "@type": kind,
                "cluster_name": "ns1/a:9002",
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {
                                "endpoint": {
                                    "address": {
                                        "socket_address": {"address": host, "port_value": 9002}
                                    }
                                }
                            }
                            for host in ("192.0.2.2", "2001:db8::1")
                        ]
                    }
                ],
            }
        ],
    }


def test_file_names_are_reversible() -> None:
    """And nothing but a file of ours is taken for one."""
    assert file_name(A) == "ns1~a~9002.json"
    assert group_of("ns1~a~9002.json") == A
    for name in ("ns1~a~09002.json", "ns1~a.json", ".ns1~a~1.json", "ns1~a~1.json.tmp", "x"):
        assert group_of(name) is None


@contextmanager
def lock_held(eds: EdsPlace, group: GroupKey) -> Iterator[None]:
    """As a coordinator that was paused inside."""
    path = eds.folder / ".locks" / file_name(group)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


async def test_a_held_lock_is_passed_over_after_its_wait(
    eds: EdsPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """0.3 s for all held locks together, the free ones first; and it is said."""
    with lock_held(eds, A), lock_held(eds, B):
        routes = [route(each, ONE, 1) for each in (A, B, C)]
        began = eds.clock.now
        result = await eds.publisher().write(routes, term(eds, 1))
    assert result.written == (C, A, B)
    assert 0.3 <= eds.clock.now - began < 0.35
    assert "route lock passed over" in caplog.text


async def test_a_lock_that_is_let_go_is_taken(
    eds: EdsPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """Within the wait: nothing is passed over."""
    with lock_held(eds, A):
        task = asyncio.create_task(eds.publisher().write([route(A, ONE, 1)], term(eds, 1)))
        while eds.clock.now < 100.05:
            await asyncio.sleep(0)
    assert (await task).written == (A,)
    assert "passed over" not in caplog.text


async def test_a_writer_that_wakes_before_its_deadline_check_writes_nothing(
    eds: EdsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paused under its lock with the comparison behind it: its own clock tells it."""
    commit = EdsFile._commit

    def paused(self: EdsFile, temporary: str, during: Term) -> bool:
        eds.clock.now += 10.0
        return commit(self, temporary, during)

    monkeypatch.setattr(EdsFile, "_commit", paused)
    result = await eds.publisher().write([route(A, ONE, 1)], term(eds, 1))
    assert result.refused == (A,)
    assert await eds.publisher().read() == {}
    assert [each.name for each in eds.folder.iterdir()] == [".locks"]


async def test_a_writer_paused_after_its_last_check_is_overtaken_and_repaired(
    eds: EdsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one stale write that fencing cannot stop: it lands, is seen, and is written over."""
    rename = EdsFile._rename
    reached, resume = threading.Event(), threading.Event()

    def paused(self: EdsFile, temporary: str) -> None:
        if not reached.is_set():
            reached.set()
            assert resume.wait(10)
        rename(self, temporary)

    monkeypatch.setattr(EdsFile, "_rename", paused)
    stale = asyncio.create_task(eds.publisher().write([route(A, ONE, 1)], term(eds, 1)))
    assert await asyncio.to_thread(reached.wait, 10)
    leader = eds.publisher()
    assert (await leader.write([route(A, TWO, 2)], term(eds, 2))).written == (A,)
    resume.set()
    assert (await stale).written == (A,)
    assert await leader.read() == {A: route(A, ONE, 1)}
    assert (await leader.write([route(A, TWO, 2)], term(eds, 2))).written == (A,)
    assert await leader.read() == {A: route(A, TWO, 2)}


async def test_files_of_killed_writers_are_cleared_away(eds: EdsPlace) -> None:
    """After a minute; a younger one may still be renamed."""
    await eds.publisher().write([route(A, ONE, 1)], term(eds, 1))
    temporary = eds.folder / ".ns1~a~9002.json.abc.tmp"
    temporary.write_text("x")
    publisher = EdsRoutes(eds.folder, settings=RouteSettings(), clock=LateClock(30.0))
    await publisher.read()
    assert temporary.exists()
    await EdsRoutes(eds.folder, settings=RouteSettings(), clock=LateClock(90.0)).read()
    assert not temporary.exists()


class LateClock(RoutesClock):
    """Wall time that is `ahead` of the machine's by that many seconds."""

    def __init__(self, ahead: float) -> None:
        super().__init__()
        self._ahead = ahead

    def wall(self) -> float:
        return time.time() + self._ahead


async def test_a_folder_that_is_none_is_named(eds: EdsPlace) -> None:
    """Reading and writing both say which folder and why."""
    eds.folder.write_text("a file")
    with pytest.raises(RouteError, match="eds: Not a directory"):
        await eds.publisher().read()
    with pytest.raises(RouteError, match="eds"):
        await eds.publisher().write([route(A, ONE, 1)], term(eds, 1))


async def test_a_cancelled_write_acts_no_more(
    eds: EdsPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the cancelled task has ended, no thread writes behind it."""
    groups = [GroupKey("ns1", f"svc-{number}", 9002) for number in range(500)]
    routes = [route(each, ONE, 1) for each in groups]
    task = asyncio.create_task(eds.publisher().write(routes, term(eds, 1)))
    while not eds.folder.exists():
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    written = len(await eds.publisher().read())
    assert written < 500
    await asyncio.sleep(0)
    assert len(await eds.publisher().read()) == written

"""Strays between real workers: forwarded to the owner whom the leader names, one hop."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from epp_worker.forwarding.calls import GROUP_KEY, SAID_KEY
from fleet.control.messages import Assign, OwnerOf
from fleet.model import Hold
from tests.neighbours import (
    AUTHORITY,
    GROUP,
    POD,
    Neighbourhood,
    SlowPods,
    ended,
    neighbourhood,
    settings,
)
from tests.unit import extproc_messages
from tests.worker_inprocess import DEADLINE, Gateway, picked_on, until

MIB = 1024 * 1024


def strays(of: Neighbourhood, number: int) -> dict[str, int]:
    """A worker's counts, those that are not 0."""
    return {name: n for name, n in of[number].worker.figures().strays.items() if n}


async def owned_by_one(made: Neighbourhood) -> Gateway:
    """worker-1 owns pool a, worker-0 holds nothing; a gateway of worker-0."""
    await made.assign(1, 1, pool_a=Hold.OWNER)
    await made.assign(0, 1)
    made.owners["pool-a"] = "worker-1"
    made.answer()
    return Gateway(made[0].worker.addresses.ext_proc, AUTHORITY)


async def test_a_stray_goes_to_the_owner_whom_the_leader_names(tmp_path: Path) -> None:
    """Counted once, where it came; to the owner it is a stream, and no sign of a route to it."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        assert await gateway.pick() == POD + ":8000"
        assert strays(made, 0) == {"forwarded": 1}
        assert strays(made, 1) == {}
        assert [ask.groups for ask in made.asked] == [(GROUP,)]
        owner = made[1].worker
        group = owner.holdings.get(GROUP)
        assert group is not None
        assert (group.streams, group.last_stray) == (1, float("-inf"))
        await until(lambda: owner.counters.streams_open == 0, "the end of the owner's stream")
        assert owner.counters.streams_total[0] == 1
        await gateway.close()


async def test_streams_that_come_together_ask_once(tmp_path: Path) -> None:
    """Those that wait are released by the answer; those that follow use it."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        await asyncio.gather(*(gateway.pick() for _ in range(20)))
        await asyncio.gather(*(gateway.pick() for _ in range(20)))
        assert strays(made, 0) == {"forwarded": 40}
        assert len(made.asked) <= 2
        await gateway.close()


async def exchange(call: Any, size: int) -> list[bytes]:
    """A request body of `size` in chunks, then a response of 64 SSE events; all that was said."""
    said: list[bytes] = []

    async def read(count: int) -> None:
        async with asyncio.timeout(3 * DEADLINE):
            while len(said) < count:
                data = await call.read()
                assert isinstance(data, bytes), await call.code()
                said.append(data)

    body = b'{"model": "m", "prompt": "' + b"x" * size + b'"}'
    headers = {":method": "POST", ":path": "/v1/completions", "x-request-id": "r1"}
    await call.write(extproc_messages.request_headers(headers))
    for start in range(0, len(body), 60_000):
        end = start + 60_000 >= len(body)
        part = extproc_messages.request_body(body[start : start + 60_000], end_of_stream=end)
        await call.write(part)
    chunks = -(-len(body) // 62_000)
    await read(1 + chunks)
    await call.write(extproc_messages.response_headers({":status": "200"}))
    for number in range(64):
        event = b'data: {"choices": [{"text": "%d"}]}\n\n' % number
        await call.write(extproc_messages.response_body(event, end_of_stream=number == 63))
    before = len(said)
    await read(before + 65)
    await call.done_writing()
    assert await call.read() is not None
    assert await call.code() is grpc.StatusCode.OK
    return said


async def test_a_forwarded_stream_says_what_a_direct_one_says(tmp_path: Path) -> None:
    """10 MiB up and back, then 64 events of the response: byte by byte the same messages."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        direct = Gateway(made[1].worker.addresses.ext_proc, AUTHORITY)
        wanted = await exchange(direct.stream(), 10 * MIB)
        got = await exchange(gateway.stream(), 10 * MIB)
        assert got == wanted
        assert strays(made, 0) == {"forwarded": 1}
        await gateway.close()
        await direct.close()


async def test_one_message_of_10_mib_is_forwarded(tmp_path: Path) -> None:
    """As gateways send it that buffer bodies."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        call = gateway.stream()
        body = b'{"model": "m", "prompt": "' + b"x" * 10 * MIB + b'"}'
        await call.write(extproc_messages.request_headers(mode=extproc_messages.BUFFERED))
        async with asyncio.timeout(DEADLINE):
            assert isinstance(await call.read(), bytes)
            await call.write(extproc_messages.request_body(body, end_of_stream=True))
            assert isinstance(await call.read(), bytes)
        call.cancel()
        await gateway.close()


async def test_a_gateway_that_cancels_cancels_the_owners_stream(tmp_path: Path) -> None:
    """What the owner counted as in flight is given back."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        call = gateway.stream()
        await picked_on(call)
        owner = made[1].worker
        inflight = owner.figures().inflight
        assert sum(sum(counts.values()) for counts in inflight.values()) == 1
        call.cancel()
        await until(lambda: owner.counters.streams_open == 0, "the end of the owner's stream")
        inflight = owner.figures().inflight
        assert sum(sum(counts.values()) for counts in inflight.values()) == 0
        assert owner.counters.streams_total[1] == 1
        assert strays(made, 0) == {"forwarded": 1}
        await gateway.close()


async def test_the_owners_own_status_arrives_as_it_is(tmp_path: Path) -> None:
    """A body before any headers is the gateway's fault, whoever says so."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        direct = Gateway(made[1].worker.addresses.ext_proc, AUTHORITY)
        ends = []
        for one in (direct, gateway):
            call = one.stream()
            await call.write(extproc_messages.request_body(b"{}", end_of_stream=True))
            ends.append(await ended(call))
        assert ends[0][0] is grpc.StatusCode.INVALID_ARGUMENT
        assert ends[1] == ends[0]
        assert strays(made, 0) == {"forwarded": 1}
        await gateway.close()
        await direct.close()


async def test_a_stream_that_ends_early_ends_as_at_the_owner(tmp_path: Path) -> None:
    """The gateway half-closes before the body is whole: no OK before the pick."""
    async with neighbourhood(tmp_path) as made:
        gateway = await owned_by_one(made)
        direct = Gateway(made[1].worker.addresses.ext_proc, AUTHORITY)
        ends = []
        for one in (direct, gateway):
            call = one.stream()
            await call.write(extproc_messages.request_headers())
            await call.done_writing()
            ends.append(await ended(call))
        assert ends[0][0] is not grpc.StatusCode.OK
        assert ends[1] == ends[0]
        await gateway.close()
        await direct.close()


async def test_a_wrong_answer_goes_no_further(tmp_path: Path) -> None:
    """Each thinks that the other owns the group: one hop, then UNAVAILABLE in bounded time."""
    async with neighbourhood(tmp_path, own=settings(stray_hold_seconds=0.5)) as made:
        await made.assign(0, 1)
        await made.assign(1, 1)
        made[1].worker.whereabouts.learn([OwnerOf(GROUP, "worker-0")])
        made.owners["pool-a"] = "worker-1"
        made.answer()
        gateway = Gateway(made[0].worker.addresses.ext_proc, AUTHORITY)
        call = gateway.stream()
        await call.write(extproc_messages.request_headers())
        assert (await ended(call))[0] is grpc.StatusCode.UNAVAILABLE
        assert strays(made, 0) == {"failed": 1}
        assert strays(made, 1) == {}
        assert made[1].worker.counters.streams_total[14] == 1
        await gateway.close()


async def test_an_owner_that_is_not_told_yet_takes_the_stream_when_it_is(tmp_path: Path) -> None:
    """The leader named it before its share arrived: it holds the stream for that long."""
    async with neighbourhood(tmp_path) as made:
        await made.assign(0, 1)
        await made.assign(1, 1)
        made[0].worker.whereabouts.learn([OwnerOf(GROUP, "worker-1")])
        gateway = Gateway(made[0].worker.addresses.ext_proc, AUTHORITY)
        pick = asyncio.create_task(gateway.pick())
        owner = made[1].worker
        await until(lambda: owner.counters.streams_open == 1, "the stream at the owner")
        await made.assign(1, 2, pool_a=Hold.OWNER)
        assert await pick == POD + ":8000"
        assert strays(made, 0) == {"forwarded": 1}
        assert strays(made, 1) == {}
        await gateway.close()


@pytest.mark.parametrize("hold", [Hold.STANDBY, Hold.DRAINING, Hold.OPENING])
async def test_the_other_side_serves_from_any_hold(tmp_path: Path, hold: Hold) -> None:
    """An answer that is out of date costs nothing, and does not keep a drain alive."""
    async with neighbourhood(tmp_path) as made:
        await made.assign(0, 1)
        await made.assign(1, 1, owner="worker-9", pool_a=hold)
        made.owners["pool-a"] = "worker-1"
        made.answer()
        gateway = Gateway(made[0].worker.addresses.ext_proc, AUTHORITY)
        assert await gateway.pick() == POD + ":8000"
        group = made[1].worker.holdings.get(GROUP)
        assert group is not None
        assert group.last_stray == float("-inf")
        assert strays(made, 1) == {}
        await gateway.close()


async def test_a_share_that_names_the_owner_is_an_answer(tmp_path: Path) -> None:
    """The stand-by has not listed the pods yet: the owner that its share names serves."""
    source = SlowPods(tmp_path)
    async with neighbourhood(tmp_path, sources=lambda n: source if n == 0 else None) as made:
        await made.assign(1, 1, pool_a=Hold.OWNER)
        share = made[0].share(1, 1, "worker-1", pool_a=Hold.STANDBY)
        await made.leaders[0].say(Assign(share, True, made.peers))
        await made.leaders[0].report_when(lambda report: report.version == (1, 1))
        made.answer()
        gateway = Gateway(made[0].worker.addresses.ext_proc, AUTHORITY)
        assert await gateway.pick() == POD + ":8000"
        assert strays(made, 0) == {"forwarded": 1}
        assert made.asked == []
        await gateway.close()


async def test_a_group_that_was_drained_is_known_without_asking(tmp_path: Path) -> None:
    """The share named the new owner; also when no leader is there any more."""
    own = settings(quiet_seconds=0.1)
    async with neighbourhood(tmp_path, own=own) as made:
        await made.assign(1, 1, pool_a=Hold.OWNER)
        await made.assign(0, 1, pool_a=Hold.OWNER)
        await made.assign(0, 2, owner="worker-1", pool_a=Hold.DRAINING)
        await made.assign(0, 3, owner="worker-1")
        former = made[0].worker
        await until(lambda: former.holdings.get(GROUP) is None, "the end of the drain")
        await made.leave()
        await until(lambda: former.control.leader() is None, "the leader's leave")
        gateway = Gateway(former.addresses.ext_proc, AUTHORITY)
        assert await gateway.pick() == POD + ":8000"
        assert strays(made, 0) == {"forwarded": 1}
        await gateway.close()


async def test_gateways_cannot_say_that_a_stream_was_forwarded(tmp_path: Path) -> None:
    """The ext_proc port knows no such mark: the authority decides, and strays are forwarded."""
    async with neighbourhood(tmp_path, own=settings(stray_hold_seconds=0.3)) as made:
        gateway = await owned_by_one(made)
        other = Gateway(made[1].worker.addresses.ext_proc, "pool-b-epp.ns1.svc:9002")
        mark: Any = ((GROUP_KEY, str(GROUP)), (SAID_KEY, "1"))
        call = gateway.stream(mark)
        assert await picked_on(call) == POD + ":8000"
        call.cancel()
        assert strays(made, 0) == {"forwarded": 1}
        call = other.stream(mark)
        await call.write(extproc_messages.request_headers())
        assert (await ended(call))[0] is grpc.StatusCode.UNAVAILABLE
        await gateway.close()
        await other.close()


async def test_names_that_nobody_has_are_not_asked_about(tmp_path: Path) -> None:
    """They can be made up without end."""
    async with neighbourhood(tmp_path, own=settings(stray_hold_seconds=0.3)) as made:
        await made.assign(0, 1)
        made.answer()
        gateway = Gateway(made[0].worker.addresses.ext_proc, "made-up.ns1.svc:9002")
        call = gateway.stream()
        await call.write(extproc_messages.request_headers())
        assert (await ended(call))[0] is grpc.StatusCode.UNAVAILABLE
        assert made.asked == []
        await gateway.close()

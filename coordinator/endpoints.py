"""Asks the worker that owns a pool for its endpoints and their last metrics.

People ask, through this coordinator's API; any replica can, since all know the workers' addresses.
A call has a channel of its own: it is rare, and must not disturb the leader's control streams.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from coordinator.grpc_reach import CHANNEL_OPTIONS
from coordinator.view import EndpointsUnknown, UnknownPool
from fleet.certificates import Certificates, Role
from fleet.control.endpoint_messages import (
    ENDPOINTS,
    AskEndpoints,
    PoolEndpoints,
)
from fleet.control.transport import dial
from fleet.errors import FormatError
from fleet.model import MemberState, MemberStatus, Placement, PoolRef, ShardMap

ANSWER_SECONDS = 1.0
"""An owner that does not answer within this is not waited for."""

AT_ONCE = 8
"""Questions under way; who comes when there are as many is turned away."""

FRESH_SECONDS = 1.0
"""So old an answer may be: people who look at the same pool share it, and a worker is not asked
more often because more of them look."""

MAX_KEPT = 32
"""Answers that are kept; the oldest go first."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024


class EndpointQuestions:
    """Asks workers.

    Args:
        certificates: of the internal port; None = it speaks plaintext.
    """

    def __init__(self, fleet: str, token: str, certificates: Certificates | None) -> None:
        self._fleet = fleet
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._certificates = certificates
        self._asked: dict[tuple[PoolRef, str], tuple[float, asyncio.Task[PoolEndpoints]]] = {}

    async def ask(
        self, ref: PoolRef, shard_map: ShardMap, members: Sequence[MemberStatus]
    ) -> PoolEndpoints:
        """The endpoints of a pool, by its owner's word.

        Raises:
            UnknownPool: it is in no placement of the map.
            EndpointsUnknown: nobody owns it, or the owner does not answer.
        """
        placement = placement_of(shard_map, ref)
        if placement is None:
            raise UnknownPool(f"the shard map has no pool {ref}")
        if not placement.owners:
            raise EndpointsUnknown(f"nobody owns {ref}, and only an owner knows its endpoints")
        owner = placement.owners[0]
        member = next((each for each in members if each.member.id == owner), None)
        if member is None or member.state is MemberState.DEAD:
            raise EndpointsUnknown(f"{owner}, the owner, is not known to be alive")
        answer = await self._shared(owner, member.member.addresses.internal, ref)
        if answer.hold is None:
            raise EndpointsUnknown(f"{owner}, the owner, has not taken the pool up yet")
        return answer

    async def _shared(self, owner: str, address: str, ref: PoolRef) -> PoolEndpoints:
        """The answer to a question that is under way, or was asked a moment ago; else a new one."""
        now = asyncio.get_running_loop().time()
        at, task = self._asked.get((ref, address), (0.0, None))
        if task is None or (task.done() and now - at >= FRESH_SECONDS):
            if sum(not each.done() for _, each in self._asked.values()) >= AT_ONCE:
                raise EndpointsUnknown(f"{AT_ONCE} such questions are under way here; ask again")
            task = asyncio.create_task(self._call(owner, address, ref), name="ask for endpoints")
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._asked.pop((ref, address), None)
            self._asked[ref, address] = now, task
            if len(self._asked) > MAX_KEPT:
                # At most AT_ONCE are not done, so one that is stands before them.
                oldest = next(key for key, (_, each) in self._asked.items() if each.done())
                del self._asked[oldest]
        return await asyncio.shield(task)

    async def _call(self, owner: str, address: str, ref: PoolRef) -> PoolEndpoints:
        options = [
            *((name, value) for name, value in CHANNEL_OPTIONS if "receive" not in name),
            ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ]
        channel: Any = dial(address, self._certificates, Role.WORKER, options)
        question = ENDPOINTS.encode(AskEndpoints(self._fleet, ref.namespace, ref.name))
        try:
            data = await channel.unary_unary(ENDPOINTS.path)(
                question, metadata=self._metadata, timeout=ANSWER_SECONDS
            )
            return ENDPOINTS.answer(data)
        except grpc.aio.AioRpcError as error:
            raise EndpointsUnknown(f"{owner}, the owner, at {address}: {_said(error)}") from None
        except FormatError as error:
            raise EndpointsUnknown(f"{owner}, the owner, is not understood: {error}") from None
        finally:
            await channel.close(None)


def placement_of(shard_map: ShardMap, ref: PoolRef) -> Placement | None:
    """Where a pool is; of several groups that lead to it one that has an owner."""
    found = [
        placement
        for placement in shard_map.placements.values()
        if placement.group.namespace == ref.namespace
        and any(pool.ref == ref for pool in placement.pools)
    ]
    return max(found, key=lambda each: bool(each.owners), default=None)


def _said(error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {ANSWER_SECONDS:g} s"
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "its version does not tell of endpoints"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "it cannot be reached"
    return f"{error.code().name}: {(error.details() or '')[:200]}"

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
    ENDPOINTS_METHOD,
    AskEndpoints,
    PoolEndpoints,
    decode_pool_endpoints,
    encode_endpoints,
)
from fleet.control.transport import dial
from fleet.errors import FormatError
from fleet.model import MemberState, MemberStatus, Placement, PoolRef, ShardMap

ANSWER_SECONDS = 1.0
"""An owner that does not answer within this is not waited for."""

AT_ONCE = 8
"""Questions under way; who comes when there are as many is turned away."""

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
        self._slots = asyncio.Semaphore(AT_ONCE)

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
        if self._slots.locked():
            raise EndpointsUnknown(f"{AT_ONCE} such questions are under way here; ask again")
        async with self._slots:
            answer = await self._call(owner, member.member.addresses.internal, ref)
        if answer.hold is None:
            raise EndpointsUnknown(f"{owner}, the owner, has not taken the pool up yet")
        return answer

    async def _call(self, owner: str, address: str, ref: PoolRef) -> PoolEndpoints:
        options = [
            *((name, value) for name, value in CHANNEL_OPTIONS if "receive" not in name),
            ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
        ]
        channel: Any = dial(address, self._certificates, Role.WORKER, options)
        question = encode_endpoints(AskEndpoints(self._fleet, ref.namespace, ref.name))
        try:
            data = await channel.unary_unary(ENDPOINTS_METHOD)(
                question, metadata=self._metadata, timeout=ANSWER_SECONDS
            )
            return decode_pool_endpoints(data)
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

"""Two real workers: a stand-by picks by the prefixes that the owner has seen."""

import json
import random
from pathlib import Path

import pytest

from epp_worker.scheduling.contract import PickRequest, Refusal
from epp_worker.scheduling.prefix.slot import PREFIX, PrefixSlot
from fleet.model import Hold, PoolRef
from tests.prefix_pools import request
from tests.state_fleet import Fleet, fleet_of, write_pool
from tests.worker_inprocess import Gateway, picked_on, until

A, B = "worker-a", "worker-b"
PODS = 4
CONVERSATIONS = 40


def pick(fleet: Fleet, worker: str, asked: PickRequest) -> str:
    """The endpoint of a request that is over at once."""
    picked = fleet.pool(worker).pick(asked)
    assert not isinstance(picked, Refusal)
    picked.release()
    return picked.address


def slot(fleet: Fleet, worker: str) -> PrefixSlot:
    found = fleet.pool(worker).slot(PREFIX)
    assert isinstance(found, PrefixSlot)
    return found


def content(fleet: Fleet, worker: str) -> dict[str, list[int]]:
    """Blocks by endpoint, least recently used first."""
    return {each.key: list(each.recency.blocks()) for each in slot(fleet, worker).index.holdings()}


@pytest.mark.parametrize("crash", [False, True], ids=["planned move", "crash"])
async def test_conversations_stay_where_they_are_cached(tmp_path: Path, *, crash: bool) -> None:
    """Forty conversations at A, half of them before B stands by. When B owns the group, each goes
    on at the endpoint that has it; a newcomer would find one in four there by chance."""
    write_pool(tmp_path / "m", "pool-a", PODS)
    rng = random.Random(1)
    prompts = [rng.randbytes(4096) for _ in range(CONVERSATIONS)]
    async with fleet_of(tmp_path / "m", A, B) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        await until(lambda: fleet.group(A).serving, "owner serves")
        places = [pick(fleet, A, request(prompt)) for prompt in prompts[: CONVERSATIONS // 2]]
        fleet.hold(B, Hold.STANDBY, A, "pool-a")
        await until(lambda: fleet.group(B).serving, "stand-by lists pods")
        places += [pick(fleet, A, request(prompt)) for prompt in prompts[CONVERSATIONS // 2 :]]
        assert len(set(places)) == PODS
        await until(lambda: content(fleet, B) == content(fleet, A), "told")
        if crash:
            fleet.introduce(A)
        fleet.hold(B, Hold.OWNER, B, "pool-a")
        if not crash:
            fleet.hold(A, Hold.DRAINING, B, "pool-a")
        again = [pick(fleet, B, request(prompt + b"and then?")) for prompt in prompts]
        assert again == places
        if not crash:
            late = rng.randbytes(4096)
            place = pick(fleet, A, request(late))
            await until(lambda: content(fleet, A) == content(fleet, B), "strays are told, too")
            assert pick(fleet, B, request(late)) == place


async def test_chats_on_the_wire_find_their_prefix(tmp_path: Path) -> None:
    """Chat requests as gateways send them: the second turn of each conversation goes where the
    first one went, whatever else is in the body, and the metrics page tells of it."""
    write_pool(tmp_path / "m", "pool-a", PODS)
    rng = random.Random(2)
    questions = [rng.randbytes(1024).hex() for _ in range(CONVERSATIONS)]
    async with fleet_of(tmp_path / "m", A) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        await until(lambda: fleet.group(A).serving, "owner serves")
        worker = fleet.running[A].worker
        gateway = Gateway(worker.addresses.ext_proc, "pool-a-epp.ns1.svc:9002")

        async def ask(**body: object) -> str:
            call = gateway.stream()
            picked = await picked_on(call, json.dumps({"model": "m", **body}).encode())
            await call.done_writing()
            return picked

        first = [{"role": "user", "content": question} for question in questions]
        places = [await ask(messages=[one]) for one in first]
        assert len(set(places)) == PODS
        answer = {"role": "assistant", "content": "yes"}
        again = [await ask(temperature=0.1, messages=[one, answer, one]) for one in first]
        assert again == places
        found = worker.figures().prefixes
        assert found.blocks == {PoolRef("ns1", "pool-a"): len(slot(fleet, A).index)}
        # All of the first ones found nothing, all of the second ones some 8 of their 17 blocks.
        ratio = found.found["approx-prefix-cache-producer"].ratio
        assert ratio.counts[0] == CONVERSATIONS
        assert sum(ratio.counts[4:7]) == CONVERSATIONS
        await gateway.close()


async def test_a_pod_that_is_gone_is_gone_everywhere(tmp_path: Path) -> None:
    """Its entries go with it at the owner and at the stand-by, and news that is under way does not
    bring them back."""
    write_pool(tmp_path / "m", "pool-a", 2)
    async with fleet_of(tmp_path / "m", A, B) as fleet:
        fleet.hold(A, Hold.OWNER, A, "pool-a")
        await until(lambda: fleet.group(A).serving, "owner serves")
        fleet.hold(B, Hold.STANDBY, A, "pool-a")
        await until(lambda: fleet.group(B).serving, "stand-by lists pods")
        for number in range(20):
            pick(fleet, A, request(number.to_bytes(4, "little") * 100))
        await until(lambda: content(fleet, B) == content(fleet, A), "told")
        write_pool(tmp_path / "m", "pool-a", 1)
        for worker in (A, B):
            await until(lambda w=worker: len(content(fleet, w)) == 1, "one pod is left")  # type: ignore[misc]
        assert content(fleet, A) == content(fleet, B)
